package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// sandbox makes sure that the pod has exactly one good sandbox. It returns true
// when there is one, and false when the plan is complete without: something has
// to be killed first, the sandbox is being made, or the pod is over.
func (b *builder) sandbox() bool {
	newest, _ := b.Observed.Newest()
	fault := b.sandboxFault(newest)
	if fault == "" {
		b.active = newest
		return true
	}
	if b.killAll(newest, fault) {
		return false
	}
	if b.rec.RestartAll != nil {
		b.forgetExits() // the new sandbox starts everything anyway
	}
	if !b.worthSandbox() {
		b.finish()
		return false
	}
	b.createSandbox()
	return false
}

// sandboxFault says why the pod needs another sandbox (CPA-1); empty when the
// one it has is good. Where there is none, newest is the zero value.
func (b *builder) sandboxFault(newest pod.Sandbox) string {
	ready := 0
	for _, s := range b.Observed.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	switch {
	case !newest.Ready:
		return "it is not ready any more"
	case ready > 1:
		return fmt.Sprintf("the pod has %d ready sandboxes", ready)
	case newest.HostNetwork != b.Pod.Spec.HostNetwork:
		return "its network namespace is not what the pod asks for"
	case !newest.HostNetwork && len(newest.IPs) == 0:
		return "it has no address"
	}
	return ""
}

// killAll plans the end of everything in the pod's sandboxes, so that another
// can take their place (CPA-3, INV-17). It returns false when all is down.
func (b *builder) killAll(newest pod.Sandbox, fault string) bool {
	if newest.ID != "" && b.rec.Sandbox.Announced != newest.ID && b.worthSandbox() {
		b.rec.Sandbox.Announced = newest.ID
		b.event("", corev1.EventTypeNormal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created: "+fault+".")
	}
	busy := false
	for _, c := range b.Observed.Containers {
		if live(c) {
			busy = true
			b.stop(c, seconds(pod.GracePeriod(b.Pod)), "The sandbox of the pod is replaced")
		}
	}
	if busy {
		return true
	}
	return b.stopSandboxes()
}

// stopSandboxes plans the stop of every sandbox that is ready or was not
// stopped by this agent yet. It returns false when there is none.
func (b *builder) stopSandboxes() bool {
	busy := false
	for _, s := range b.Observed.Sandboxes {
		if !s.Ready && slices.Contains(b.rec.Sandbox.Stopped, s.ID) {
			continue
		}
		busy = true
		if f := b.rec.Sandbox.StopFailure; b.held(f) {
			b.wait("", f.Reason, f.Message)
			continue
		}
		b.do(Action{Op: OpStopSandbox, ID: s.ID})
	}
	return busy
}

// worthSandbox reports whether a replaced sandbox would have anything to run
// (CPA-4, CPA-5), by the effective policy of each container.
func (b *builder) worthSandbox() bool {
	if b.initFailedForGood() {
		return false
	}
	for i := range b.Pod.Spec.Containers {
		c := &b.Pod.Spec.Containers[i]
		if b.runsAgain(c, b.rec.Container(c.Name)) {
			return true
		}
	}
	return false
}

// initFailedForGood reports whether an init container ended in a way that its
// policy does not forgive, before the pod was initialised.
func (b *builder) initFailedForGood() bool {
	if b.rec.Initialized.SandboxID != "" {
		return false
	}
	for i := range b.Pod.Spec.InitContainers {
		c := &b.Pod.Spec.InitContainers[i]
		cr := b.rec.Container(c.Name)
		if cr.Exit != nil && failedExit(cr.Exit) && !b.runsAgain(c, cr) {
			return true
		}
	}
	return false
}

// runsAgain reports whether a container that is not running is to be started:
// because it never ended, because it was stopped only to be replaced, or
// because its rules or policy say so (CPA-20).
func (b *builder) runsAgain(c *corev1.Container, cr pod.ContainerRecord) bool {
	if cr.Exit == nil || cr.Replacing == cr.Exit.ContainerID {
		return true
	}
	return pod.RestartsAfter(&b.Pod.Spec, c, exitCode(cr.Exit))
}

// exitCode returns the code by which policies judge an end: an OOM kill is a
// failure even where the first process managed to exit with zero.
func exitCode(e *pod.Exit) int32 {
	if e.ExitCode == 0 && failedExit(e) {
		return pod.ExitLost
	}
	return e.ExitCode
}

// createSandbox plans the next sandbox and, beside it, what does not depend on
// it: the volumes, and the images of the containers that start first.
func (b *builder) createSandbox() {
	b.prefetch()
	b.setUpVolumes()
	if f := b.rec.Sandbox.Failure; b.held(f) {
		b.wait("", f.Reason, f.Message)
		return
	}
	b.do(Action{Op: OpCreateSandbox, Attempt: b.rec.Sandbox.Attempts})
	b.wait("", "ContainerCreating", "")
}

// setUpVolumes plans the volumes and reports whether they are ready.
func (b *builder) setUpVolumes() bool {
	if b.rec.VolumesReady {
		return true
	}
	if f := b.rec.VolumesFailure; b.held(f) {
		b.wait("", f.Reason, f.Message)
		return false
	}
	b.do(Action{Op: OpSetUpVolumes})
	return false
}

// prefetch wants the images of the containers that start first in a new
// sandbox: the first init container, or else all normal ones.
func (b *builder) prefetch() {
	if len(b.Pod.Spec.InitContainers) > 0 {
		b.image(&b.Pod.Spec.InitContainers[0])
		return
	}
	for i := range b.Pod.Spec.Containers {
		c := &b.Pod.Spec.Containers[i]
		if cr := b.rec.Container(c.Name); b.runsAgain(c, cr) {
			b.image(c)
		}
	}
}
