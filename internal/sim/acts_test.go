package sim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// acting holds an action against the truth at the moment when it is sent.
func (t *truth) acting(k *worker, a plan.Action) {
	p := t.of(k.uid)
	switch a.Op {
	case plan.OpCreateSandbox, plan.OpCreateContainer, plan.OpStartContainer:
		if p.stop != nil {
			t.w.violate("INV-3", "%s: %v after its end was asked for", k.uid, a)
		}
	default:
	}
	switch a.Op {
	case plan.OpCreateSandbox:
		t.creatingSandbox(k, p)
	case plan.OpCreateContainer:
		t.creatingContainer(k, p, a)
	case plan.OpStartContainer:
		t.existed(k, a)
		if c := t.w.machine.container(a.ID); c != nil {
			t.inOrder(k, p, a.Container, c.SandboxID)
		}
	case plan.OpStopContainer, plan.OpKillContainer, plan.OpRemoveContainer:
		t.existed(k, a)
		t.endingContainer(k, p, a)
	case plan.OpStopSandbox, plan.OpRemoveSandbox:
		t.sandboxExisted(k, a)
		if a.Op == plan.OpStopSandbox {
			t.stoppingSandbox(k, p, a)
		}
	default:
	}
}

// existed checks that the action is about something that was in the view.
func (t *truth) existed(k *worker, a plan.Action) {
	if _, ok := k.planned.ByID(a.ID); !ok {
		t.w.violate("INV-13", "%s: %v names a container that was not in the view", k.uid, a)
	}
}

func (t *truth) sandboxExisted(k *worker, a plan.Action) {
	for _, s := range k.planned.Sandboxes {
		if s.ID == a.ID {
			return
		}
	}
	t.w.violate("INV-13", "%s: %v names a sandbox that was not in the view", k.uid, a)
}

// creatingSandbox: INV-17, INV-4.
func (t *truth) creatingSandbox(k *worker, p *podTruth) {
	for _, c := range t.w.machine.containers {
		switch {
		case !c.alive, c.intruder:
		case c.uid == k.uid:
			t.w.violate("INV-17", "a new sandbox for %s while %s runs", k.uid, c.ID)
		case c.key == p.key:
			t.w.violate("INV-4", "%s starts while %s of %s, the instance before it, runs", k.uid, c.ID, c.uid)
		}
	}
	for _, s := range k.planned.Sandboxes {
		if s.Ready {
			t.w.violate("INV-1", "a new sandbox for %s while %s is ready", k.uid, s.ID)
		}
	}
}

// stoppingSandbox: INV-15 and TRM-1, containers go before their sandbox.
func (t *truth) stoppingSandbox(k *worker, p *podTruth, a plan.Action) {
	for _, c := range t.w.machine.containers {
		if _, planned := k.planned.ByID(c.ID); c.uid == p.uid && c.alive && c.SandboxID == a.ID && planned {
			t.w.violate("INV-15", "%s: %v while %s runs in it", k.uid, a, c.ID)
		}
	}
}

// creatingContainer: INV-7, INV-8, INV-14.
func (t *truth) creatingContainer(k *worker, p *podTruth, a plan.Action) {
	spec, kind := pod.Find(&k.inWave.Spec, a.Container)
	if spec == nil {
		t.w.violate("INV-13", "%s: %v names a container that the spec does not have", k.uid, a)
		return
	}
	runs := p.runsOf(a.Container)
	for _, r := range runs {
		if _, planned := k.planned.ByID(r.c.ID); r.c.intruder && !planned {
			continue // the number or the next look tells
		}
		if !r.over {
			t.w.violate("INV-1", "%s: %v while %s runs", k.uid, a, r.c.ID)
		}
	}
	if n := len(runs); n > 0 {
		t.runsOnce(k, p, spec, kind, a, runs[n-1]) // those before it were judged then
	}
	if kind == pod.KindEphemeral && len(runs) > 0 && t.exitKnown(runs[len(runs)-1]) {
		t.w.violate("CPA-8", "%s: %v a second time", k.uid, a)
	}
	t.inOrder(k, p, a.Container, a.ID)
	if len(runs) > 0 {
		t.patient(k, p, spec, kind, a, runs[len(runs)-1])
	}
}

// runsOnce: INV-7. A run that ended in a way that its policy accepts is not
// followed by another one, unless something replaced it.
func (t *truth) runsOnce(k *worker, p *podTruth, spec *corev1.Container, kind pod.Kind, a plan.Action, r *run) {
	if p.intruded || r.round != p.round || r.replaced.known(t.w) || kind == pod.KindSidecar || kind == pod.KindEphemeral {
		return
	}
	known := t.exitKnown(r)
	if kind == pod.KindInit {
		if known && r.c.SandboxID == a.ID && (r.code == 0 || !pod.RestartsAfter(&k.inWave.Spec, spec, r.code)) {
			t.w.violate("INV-7", "%s: %v, and %s had ended with %d", k.uid, a, r.c.ID, r.code)
		}
		return
	}
	never := pod.RestartPolicy(&k.inWave.Spec, spec) == corev1.RestartPolicyNever && len(spec.RestartPolicyRules) == 0
	if known && !pod.RestartsAfter(&k.inWave.Spec, spec, r.code) || never && (known || r.running.known(t.w)) {
		t.w.violate("INV-7", "%s: %v, and %s had ended with %d", k.uid, a, r.c.ID, r.code)
	}
}

// inOrder: INV-8. What comes first has to be done when a container is made or
// started for the first time in its sandbox.
func (t *truth) inOrder(k *worker, p *podTruth, name, sandbox string) {
	kind := pod.KindOf(&k.inWave.Spec, name)
	if kind == pod.KindEphemeral || kind == pod.KindUnknown {
		return
	}
	at := len(k.inWave.Spec.InitContainers)
	for i := range k.inWave.Spec.InitContainers {
		if k.inWave.Spec.InitContainers[i].Name == name {
			at = i
		}
	}
	if t.past(p, k, at, sandbox) {
		return
	}
	for i := range k.inWave.Spec.InitContainers[:at] {
		c := &k.inWave.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			t.sidecarStarted(p, c, sandbox, name+" starts")
		} else {
			t.initDone(p, c, sandbox, name+" starts")
		}
	}
}

// sidecarStarted accepts a sidecar that was up in this sandbox once: that it went
// down since holds up nobody (INI-14).
func (t *truth) sidecarStarted(p *podTruth, c *corev1.Container, sandbox, what string) {
	for _, r := range p.runsOf(c.Name) {
		if r.c.SandboxID == sandbox && r.round == p.round && (c.StartupProbe == nil || r.startupVerdict) {
			return
		}
	}
	t.w.violate("INV-8", "%s in %s of %s, and sidecar %s has not started", what, sandbox, p.uid, c.Name)
}

// past says that a container at this place in the order, or a later one, was
// there before in this sandbox.
func (t *truth) past(p *podTruth, k *worker, at int, sandbox string) bool {
	index := map[string]int{}
	for i := range k.inWave.Spec.InitContainers {
		index[k.inWave.Spec.InitContainers[i].Name] = i
	}
	for i := range k.inWave.Spec.Containers {
		index[k.inWave.Spec.Containers[i].Name] = len(k.inWave.Spec.InitContainers)
	}
	for _, r := range p.runs {
		if i, ok := index[r.c.Name]; ok && r.round == p.round && r.c.SandboxID == sandbox && i >= at {
			return true
		}
	}
	return false
}

// patient: INV-14, with a count of its own.
func (t *truth) patient(k *worker, p *podTruth, spec *corev1.Container, kind pod.Kind, a plan.Action, last *run) {
	w := p.waits[a.Container]
	if w == nil {
		w = &patience{boot: t.w.boots}
		p.waits[a.Container] = w
	}
	if last.c.SandboxID != a.ID {
		w.more = true // it may have been waited for before the sandbox was replaced
	}
	if kind == pod.KindEphemeral || (kind == pod.KindInit && last.c.SandboxID != a.ID) {
		return
	}
	if w.charged == last {
		return
	}
	if !last.exit.known(t.w) && !last.running.known(t.w) {
		w.vague = true
		return
	}
	image := spec.Image
	if last.c.Image != image || p.edited[a.Container] >= last.began {
		*w = patience{charged: last, boot: t.w.boots, vague: !last.ousted || p.edited[a.Container] >= last.began} // another image starts with a clean slate (SWP-4)
		return
	}
	same := w.image == image && w.delay > 0 && last.ended-w.updated <= 10*time.Minute-time.Second
	if t.w.jumped(last.ended, max(last.seenEnd, last.ended)) || last.seenEnd == 0 || (w.boot != t.w.boots || last.boot != t.w.boots) && len(t.w.jumps) > 0 || p.intruded {
		// No clock tells how long ago that was; the agent may count anew.
		*w = patience{boot: t.w.boots, charged: last, vague: true}
		return
	}
	if same && !w.vague && t.w.now-last.ended < w.delay-time.Second {
		t.w.violate("INV-14", "%s: %v %v after the end of %s, and its back-off is %v", k.uid, a, t.w.now-last.ended, last.c.ID, w.delay)
	}
	next, since := 10*time.Second, last.ended
	if same {
		next, since = min(2*w.delay, 300*time.Second), last.ended+w.delay
	}
	// The delay grows when it is over, which is before the image is there.
	*w = patience{
		delay: next, updated: since, boot: t.w.boots, charged: last, image: image,
		vague: w.vague, more: w.more || (!same && w.delay > 0),
	}
	if got := k.rec.Containers[a.Container].Backoff.Delay; !w.vague && !w.more && got > w.delay && !p.unstarted[a.Container] {
		t.w.violate("INV-14", "%s: the back-off of %s is %v after a restart that makes it %v", k.uid, a.Container, got, w.delay)
	}
}

// endingContainer: INV-21 while the pod is to run, INV-5 and INV-9 while it ends.
func (t *truth) endingContainer(k *worker, p *podTruth, a plan.Action) {
	c := t.w.machine.container(a.ID)
	if c == nil || !c.alive {
		return
	}
	if k.rec.Phase == pod.PhaseSyncing {
		t.justified(k, p, a, c)
		return
	}
	if p.stop == nil {
		t.w.violate("INV-21", "%s: %v, and nobody asked for its end", k.uid, a)
	}
	left := p.stop.deadline - t.w.now
	if a.Op == plan.OpStopContainer && time.Duration(a.GraceSeconds)*time.Second > max(left, 2*time.Second)+1100*time.Millisecond {
		t.w.violate("INV-5", "%s: %v with %v of its grace left", k.uid, a, left)
	}
	if a.Op == plan.OpStopContainer && left > 0 && c.Kind == pod.KindSidecar {
		t.sidecarOrder(k, a, c)
	}
}

func (t *truth) sidecarOrder(k *worker, a plan.Action, c *container) {
	rank := func(name string) int {
		for i := range k.inWave.Spec.InitContainers {
			if k.inWave.Spec.InitContainers[i].Name == name {
				return i
			}
		}
		return -1
	}
	for _, other := range t.alive(k.uid) {
		if _, planned := k.planned.ByID(other.ID); !planned || other == c || other.Kind == pod.KindEphemeral {
			continue
		}
		if other.Kind != pod.KindSidecar || rank(other.Name) > rank(c.Name) {
			t.w.violate("INV-9", "%s: %v while %s (%s) runs", k.uid, a, other.ID, other.Name)
		}
	}
}

// justified: INV-21. A container of a pod that is to run is ended only for one
// of the known reasons.
func (t *truth) justified(k *worker, p *podTruth, a plan.Action, c *container) {
	spec, _ := pod.Find(&k.inWave.Spec, c.Name)
	newest, ok := k.planned.Newest()
	seen, _ := k.planned.ByID(c.ID)
	ready := 0
	for _, s := range k.planned.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	switch {
	case spec == nil, c.intruder:
	case !ok, !newest.Ready, ready > 1, newest.ID != c.SandboxID:
	case k.rec.RestartAll != nil:
	case seen.State == pod.StateUnknown:
	case t.newerExists(k, c):
	case !pod.SameHash(c.Hash, pod.ContainerHash(spec)):
		if !t.w.machine.pulled[spec.Image] {
			t.w.violate("Q-33", "%s: %v, and image %s was never pulled", k.uid, a, spec.Image)
		}
		c.run.ousted = true
	case c.run.failedVerdict:
		c.run.ousted = pod.RestartPolicy(&k.inWave.Spec, spec) != corev1.RestartPolicyNever
	default:
		t.w.violate("INV-21", "%s: %v, and it is as it should be", k.uid, a)
	}
}

func (t *truth) newerExists(k *worker, c *container) bool {
	for _, other := range k.planned.Containers {
		if other.Name == c.Name && other.Attempt > c.Attempt {
			return true
		}
	}
	return false
}
