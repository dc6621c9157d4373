package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// initialize plans the init containers, and reports whether all are done: the
// plain ones finished, the sidecars started. Once they are done for a sandbox,
// only the sidecars are looked after (INI-2).
func (b *builder) initialize() bool {
	if b.initialized() {
		for i := range b.Pod.Spec.InitContainers {
			if c := &b.Pod.Spec.InitContainers[i]; pod.IsSidecar(c) {
				b.ensure(c)
			}
		}
		return true
	}
	progress := b.progress()
	for i := range b.Pod.Spec.InitContainers {
		c := &b.Pod.Spec.InitContainers[i]
		switch {
		case pod.IsSidecar(c):
			b.ensure(c)
			if !b.sidecarStarted(c) {
				if i < progress {
					continue // INI-9: later ones are under way already; restart it beside them
				}
				b.wait("", "PodInitializing", fmt.Sprintf("sidecar %s has not started yet", c.Name))
				return false
			}
		case i < progress:
			// INI-9: a later one has begun, so this one is done, seen or not.
		case !b.initStep(c):
			b.wait("", "PodInitializing", fmt.Sprintf("init container %s has not finished yet", c.Name))
			return false
		}
	}
	if !b.allSidecarsStarted() {
		return false // INV-8: nothing after a sidecar starts before it
	}
	b.rec.Initialized = pod.Initialization{SandboxID: b.active.ID, BootID: b.Now.BootID}
	return true
}

func (b *builder) initialized() bool {
	return b.rec.Initialized.SandboxID == b.active.ID && b.rec.Initialized.BootID == b.Now.BootID
}

// progress returns the index of the last init container of which anything is
// known in the active sandbox, from the runtime or from the record; what comes
// before it is behind us (INI-3, INV-7). One that never ran is no sign: a request
// from before a restart of all containers may land at any time.
func (b *builder) progress() int {
	for i := len(b.Pod.Spec.InitContainers) - 1; i > 0; i-- {
		name := b.Pod.Spec.InitContainers[i].Name
		if inst, seen := b.Observed.LatestIn(b.active.ID, name); seen && inst.State != pod.StateCreated {
			return i
		}
		if e := b.rec.Container(name).Exit; e != nil && e.SandboxID == b.active.ID {
			return i
		}
	}
	return 0
}

// initStep plans one plain init container and reports whether it is done. When
// it failed for good the pod is ended (INI-7).
func (b *builder) initStep(c *corev1.Container) bool {
	inst, seen := b.Observed.LatestIn(b.active.ID, c.Name)
	cr := b.rec.Container(c.Name)
	ended := cr.Exit != nil && cr.Exit.SandboxID == b.active.ID
	if seen && (!ended || inst.Attempt >= cr.Exit.Attempt) {
		switch inst.State {
		case pod.StateRunning:
			return false // INI-5; a changed image does not disturb it (INI-18)
		case pod.StateCreated:
			b.startCreated(c, inst)
			return false
		case pod.StateUnknown:
			b.stop(inst, seconds(pod.GracePeriod(b.Pod)), fmt.Sprintf("Init container %s is in unknown state", c.Name))
			return false
		case pod.StateExited:
			if interrupted(cr, inst) {
				b.startOver(c, inst)
				return false
			}
		}
	}
	switch {
	case !ended:
		b.startInit(c)
		return false
	case !failedExit(cr.Exit):
		return true
	case pod.RestartsAfter(&b.Pod.Spec, c, exitCode(cr.Exit)):
		b.startInit(c)
		return false
	}
	b.rec.Outcome = &pod.Outcome{Phase: corev1.PodFailed}
	b.finish()
	return false
}

// startInit plans the next run of an init container. An end in an older sandbox
// neither counts as done nor delays the run.
func (b *builder) startInit(c *corev1.Container) {
	if b.stillLive(c.Name) {
		return
	}
	cr := b.rec.Container(c.Name)
	e := cr.Exit
	if e == nil {
		e = cr.Previous // after a restart of all containers, which may come again and again (RR-9)
	}
	if e != nil && e.SandboxID == b.active.ID && !b.backoffOver(c) {
		return
	}
	b.create(c)
}

// sidecarStarted reports whether a sidecar runs and, where it has a startup
// probe, passed it (INI-10, INI-11).
func (b *builder) sidecarStarted(c *corev1.Container) bool {
	inst, _ := b.Observed.LatestIn(b.active.ID, c.Name)
	if inst.State != pod.StateRunning {
		return false
	}
	if c.StartupProbe == nil {
		return true
	}
	v := b.rec.Container(c.Name).Probed
	return v.ContainerID == inst.ID && v.Startup == pod.Passed
}

func (b *builder) allSidecarsStarted() bool {
	for i := range b.Pod.Spec.InitContainers {
		if c := &b.Pod.Spec.InitContainers[i]; pod.IsSidecar(c) && !b.sidecarStarted(c) {
			b.wait("", "PodInitializing", fmt.Sprintf("sidecar %s has not started yet", c.Name))
			return false
		}
	}
	return true
}
