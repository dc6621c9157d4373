package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// Bounds after the last fault.
const (
	// calmBound covers the longest back-off of a pull and of a restart, calls
	// that hang until their timeout, and a chain of init containers.
	calmBound = 30 * time.Minute
	// endBound covers the longest grace and the relist that finds what landed late.
	endBound = 5 * time.Minute
	// restless is how long a container that is to run may be down: its back-off.
	restless = 310 * time.Second
)

// goals checks INV-22: whatever was lost on the way, every pod has become what
// it should be.
func (w *world) goals() {
	for _, key := range sortedByKey(w.user.wanted) {
		e := w.agent.entries[key]
		if e == nil || e.current == nil {
			w.violate("INV-22", "%s is wanted and has no worker", key)
			continue
		}
		k := e.current.worker
		if k.pod.Labels["edit"] != w.user.wanted[key].pod.Labels["edit"] {
			w.violate("INV-22", "the labels of %s never arrived", key)
		}
		w.goal(k)
	}
	for _, uid := range sortedKeys(w.agent.workers) {
		k := w.agent.workers[uid]
		e := w.agent.entries[pod.KeyOf(k.pod)]
		if e == nil || e.current == nil || e.current.worker != k {
			w.violate("INV-22", "%s is wanted by nobody and is still there in phase %v:\n%v", uid, k.rec.Phase, k.newest)
		}
	}
	w.endlessTruth()
}

func (w *world) goal(k *worker) {
	if d := k.pod.Spec.ActiveDeadlineSeconds; d != nil && !w.truth.of(k.uid).adopted && w.now-w.truth.of(k.uid).since > time.Duration(*d)*time.Second+10*time.Minute &&
		len(w.jumps) == 0 && k.rec.Phase < pod.PhaseTerminated {
		w.violate("INV-28", "%s outlived its deadline", k.uid)
	}
	switch k.rec.Phase {
	case pod.PhaseSyncing:
		w.keptRunning(k)
	case pod.PhaseTerminated:
		if k.rec.Status == nil || !status.Terminal(k.rec.Status.Phase) {
			w.violate("INV-22", "%s ended and shows no terminal phase", k.uid)
		}
		if !k.rec.TornDown {
			w.violate("INV-22", "%s ended and its volumes are not released", k.uid)
		}
		for _, c := range w.truth.alive(k.uid) {
			w.violate("INV-2", "%s ended and %s runs", k.uid, c.ID)
		}
		w.quiet(k)
	default:
		w.violate("INV-22", "%s is still in phase %v:\n%v", k.uid, k.rec.Phase, k.newest)
	}
}

// keptRunning checks a pod that is to run.
func (w *world) keptRunning(k *worker) {
	ready := 0
	var box *sandbox
	for _, s := range w.machine.sandboxes {
		if s.UID == k.uid && s.Ready {
			box = s
			ready++
		}
	}
	if ready != 1 {
		w.violate("INV-1", "%s has %d ready sandboxes after everything has settled:\n%v", k.uid, ready, k.newest)
	}
	if w.stillInitializing(k, box) {
		return
	}
	for i := range k.pod.Spec.InitContainers {
		c := &k.pod.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			w.up(k, c, box)
		}
	}
	for i := range k.pod.Spec.Containers {
		c := &k.pod.Spec.Containers[i]
		runs := w.truth.of(k.uid).runsOf(c.Name)
		if n := len(runs); n > 0 && runs[n-1].over && !runs[n-1].ousted && !pod.RestartsAfter(&k.pod.Spec, c, runs[n-1].code) {
			continue // done for good
		}
		if cr := k.rec.Containers[c.Name]; cr.Exit != nil && !pod.RestartsAfter(&k.pod.Spec, c, cr.Exit.ExitCode) {
			continue // lost for good
		}
		if !w.truth.of(k.uid).intruded {
			w.up(k, c, box)
		}
	}
	if k.wave == nil && len(k.pulls) == 0 {
		w.quiet(k)
	}
}

// stillInitializing accepts a pod whose init container runs for long or fails
// again and again, as its program says.
func (w *world) stillInitializing(k *worker, box *sandbox) bool {
	for i := range k.pod.Spec.InitContainers {
		c := &k.pod.Spec.InitContainers[i]
		last := stepOf(c, len(c.Args))
		if pod.IsSidecar(c) || (!last.forever && last.code == 0) {
			continue
		}
		if k.rec.Initialized.SandboxID != box.ID || k.rec.Containers[c.Name].Running != "" {
			w.up(k, c, nil)
			return true
		}
	}
	// A sidecar that keeps ending holds up what comes after it now and then.
	return w.unsteady(k)
}

func (w *world) unsteady(k *worker) bool {
	p := w.truth.of(k.uid)
	for i := range k.pod.Spec.InitContainers {
		c := &k.pod.Spec.InitContainers[i]
		if last := stepOf(c, len(c.Args)); pod.IsSidecar(c) && !last.forever && len(p.runsOf(c.Name)) > 1 {
			return true
		}
	}
	for _, c := range k.pod.Spec.Containers {
		for _, text := range c.Args {
			if parseStep(text).code == 42 && len(c.RestartPolicyRules) > 0 {
				return true // it restarts all containers again and again
			}
		}
	}
	return false
}

// up checks that a container runs, from the image that is wanted, or did so not
// long ago and has a time to be started again.
func (w *world) up(k *worker, c *corev1.Container, box *sandbox) {
	runs := w.truth.of(k.uid).runsOf(c.Name)
	if len(runs) == 0 {
		w.violate("INV-22", "%s of %s has never run:\n%v", c.Name, k.uid, k.newest)
		return
	}
	last := runs[len(runs)-1]
	switch {
	case last.over && w.now-last.ended > restless+time.Minute:
		w.violate("INV-22", "%s of %s has been down for %v:\n%v", c.Name, k.uid, w.now-last.ended, k.newest)
	case last.over && k.newest.WakeAt.IsZero() && k.wave == nil && len(k.pulls) == 0 && w.now-last.ended > time.Minute:
		w.violate("INV-22", "%s of %s is down and nothing will wake its worker:\n%v", c.Name, k.uid, k.newest)
	case last.over:
	case w.now-last.began > time.Minute && w.now > last.c.sick+time.Minute && !last.c.intruder && !w.ready(k, c.Name) && pod.KindOf(&k.pod.Spec, c.Name) != pod.KindInit:
		w.violate("INV-22", "%s of %s runs and is well, and does not become ready: %+v", c.Name, k.uid, k.rec.Containers[c.Name].Probed)
	case box != nil && last.c.SandboxID != box.ID:
		w.violate("INV-17", "%s of %s runs in an old sandbox", c.Name, k.uid)
	case !pod.SameHash(last.c.Hash, pod.ContainerHash(c)) && pod.KindOf(&k.pod.Spec, c.Name) != pod.KindInit:
		w.violate("INV-22", "%s of %s runs %s instead of %s", c.Name, k.uid, last.c.Image, c.Image)
	}
}

// quiet checks CPA-23: when nothing is to be done, nothing is planned, even from
// a view that is taken now.
func (w *world) quiet(k *worker) {
	o := w.machine.snapshot(k.uid)
	for _, c := range o.Containers {
		if k.rec.Phase == pod.PhaseSyncing && c.State != pod.StateRunning {
			return // something is on its way
		}
	}
	in := k.input()
	in.Observed = o
	if next := plan.Compute(in); next.InspectFirst || len(next.Wave) > 0 {
		w.violate("CPA-23", "%s is quiet, and a new look at it plans:\n%v", k.uid, next)
	}
}

// endlessTruth checks that everything that runs belongs to somebody.
func (w *world) endlessTruth() {
	for _, c := range w.machine.containers {
		for _, other := range w.machine.containers {
			if c != other && c.alive && other.alive && c.uid == other.uid && c.Name == other.Name {
				w.violate("INV-1", "%s and %s, both %s of %s, run after everything has settled", c.ID, other.ID, c.Name, c.uid)
			}
		}
		if c.alive && w.agent.workers[c.uid] == nil {
			w.violate("INV-22", "%s of %s runs and belongs to nobody", c.ID, c.uid)
		}
	}
}

// nothingLeft checks the end: every pod was deleted, so nothing may be left.
func (w *world) nothingLeft() {
	for _, uid := range sortedKeys(w.agent.workers) {
		k := w.agent.workers[uid]
		w.violate("INV-22", "%s is deleted and still there in phase %v:\n%v", uid, k.rec.Phase, k.newest)
	}
	for _, c := range w.machine.containers {
		w.violate("INV-22", "container %s of %s is left", c.ID, c.uid)
	}
	for _, s := range w.machine.sandboxes {
		w.violate("INV-22", "sandbox %s of %s is left", s.ID, s.UID)
	}
	for uid := range w.disk.instances {
		w.violate("INV-22", "the record of %s is left", uid)
	}
}
