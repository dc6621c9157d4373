package sim

import (
	"bytes"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// terminationBound is what a termination may take beyond its grace when the
// runtime answers.
const terminationBound = 15 * time.Second

// check holds the machine against what must be true at every instant.
func (t *truth) check() {
	if !t.dirty {
		return
	}
	t.dirty = false
	type who struct{ uid, name string }
	runs := map[who]*container{}
	for _, c := range t.w.machine.containers {
		if !c.alive || c.intruder {
			continue
		}
		k := who{string(c.uid), c.Name}
		if other := runs[k]; other != nil {
			t.w.violate("INV-1", "%s and %s, both %s of %s, run at the same time", other.ID, c.ID, c.Name, c.uid)
		}
		runs[k] = c
		if p := t.pods[c.uid]; p.shown != "" {
			t.w.violate("INV-2", "%s of %s runs although the pod is %s", c.ID, c.uid, p.shown)
		}
	}
}

// stopAsked notes a request that a worker accepted, and comes back when its
// grace is over (INV-5).
func (t *truth) stopAsked(k *worker, req pod.StopRequest) {
	grace := pod.GracePeriod(k.pod)
	if req.GraceSeconds != nil {
		grace = *req.GraceSeconds
	}
	grace = max(grace, 1)
	t.stopBegins(k, grace, req.GraceSeconds != nil)
	p := t.of(k.uid)
	if p.grace > 0 && k.rec.Stop.GraceSeconds > p.grace {
		t.w.violate("INV-5", "the grace of %s grew from %d s to %d s", k.uid, p.grace, k.rec.Stop.GraceSeconds)
	}
	p.grace = k.rec.Stop.GraceSeconds
}

func (t *truth) stopBegins(k *worker, grace int64, given bool) {
	p := t.of(k.uid)
	deadline := t.w.now + time.Duration(grace)*time.Second
	switch {
	case p.stop == nil:
		p.stop = &stopTruth{asked: t.w.now, deadline: deadline}
	case given && deadline < p.stop.deadline:
		p.stop.deadline = deadline
	default:
		return
	}
	asked := t.w.now
	t.w.at(p.stop.deadline+terminationBound, func() {
		if p.trouble >= asked || p.stop == nil || p.stop.deadline+terminationBound > t.w.now {
			return
		}
		for _, c := range t.alive(p.uid) {
			t.w.violate("INV-5", "%s of %s runs %v after its grace was over, and nothing was in the way",
				c.ID, p.uid, terminationBound)
		}
	})
}

// computed holds a plan against its input.
func (t *truth) computed(k *worker, in plan.Input, next plan.Plan) {
	t.steps++
	p := t.of(k.uid)
	p.pod = in.Pod
	k.planned = in.Observed
	if t.steps%8 == 0 {
		before := encode(in.Record)
		if again := plan.Compute(in); !reflect.DeepEqual(again, next) {
			t.w.violate("CPA-23", "equal input gives two plans for %s:\n%v%v", k.uid, next, again)
		}
		if !bytes.Equal(before, encode(in.Record)) {
			t.w.violate("CPA-23", "planning for %s changed its input", k.uid)
		}
	}
	if next.InspectFirst {
		return
	}
	t.observed(k.uid, in.Observed)
	visit(&in.Pod.Spec, func(c *corev1.Container, image *string) {
		if old, ok := p.images[c.Name]; ok && old != *image {
			p.edited[c.Name] = t.w.now
		}
		p.images[c.Name] = *image
	})
	if in.Observed.TakenAt.Before(in.ActedAt) {
		t.w.violate("INV-13", "a plan for %s came from a view older than the last wave", k.uid)
	}
	t.transitions(k, p, in.Record, next.Record)
	t.initialized(k, p, in, next.Record)
}

// transitions checks what a plan decided to remember.
func (t *truth) transitions(k *worker, p *podTruth, before, after pod.Record) {
	if after.Phase < before.Phase {
		t.w.violate("PW-2", "%s went back from %v to %v", k.uid, before.Phase, after.Phase)
	}
	if before.Outcome != nil && !reflect.DeepEqual(before.Outcome, after.Outcome) {
		t.w.violate("INV-2", "the outcome of %s changed from %+v to %+v", k.uid, before.Outcome, after.Outcome)
	}
	if before.Stop == nil && after.Stop != nil {
		t.overByItself(p, after)
		t.stopBegins(k, pod.GracePeriod(k.pod), false)
	}
	if before.Stop != nil && after.Stop != nil && after.Stop.GraceSeconds > before.Stop.GraceSeconds {
		t.w.violate("INV-5", "the grace of %s grew", k.uid)
	}
	if r := after.RestartAll; r != nil && before.RestartAll == nil {
		t.restartAllBegins(p, r)
	}
	for name, cr := range after.Containers {
		if cr.Attempts < before.Containers[name].Attempts {
			t.w.violate("INV-11", "the attempts of %s of %s fell", name, k.uid)
		}
		if cr.Replacing == "" {
			continue
		}
		for _, r := range p.runs {
			if r.c.ID == cr.Replacing {
				r.replaced.gen = t.w.gen
			}
		}
	}
}

// overByItself checks that a pod that ends without being told to has a reason.
func (t *truth) overByItself(p *podTruth, rec pod.Record) {
	if rec.Outcome != nil && rec.Outcome.Reason == "DeadlineExceeded" {
		t.deadline(p)
		return
	}
	if p.intruded {
		return // what others made and ended counts as well
	}
	for i := range p.pod.Spec.InitContainers {
		c := &p.pod.Spec.InitContainers[i]
		runs := p.runsOf(c.Name)
		if n := len(runs); n > 0 && !pod.IsSidecar(c) && runs[n-1].over && runs[n-1].code != 0 && !pod.RestartsAfter(&p.pod.Spec, c, runs[n-1].code) {
			return // it failed for good
		}
		if cr := rec.Containers[c.Name]; cr.Exit != nil && cr.Exit.ExitCode != 0 && !pod.IsSidecar(c) && !pod.RestartsAfter(&p.pod.Spec, c, 137) {
			return // it was lost, which is a failure
		}
	}
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		runs := p.runsOf(c.Name)
		switch {
		case p.refused[c.Name]:
		case len(runs) == 0:
			t.w.violate("CPA-16", "%s is over, and %s never ran", p.uid, c.Name)
		case runs[len(runs)-1].ousted && !p.intruded:
			t.w.violate("CPA-11", "%s is over, and %s was stopped so that another one takes its place", p.uid, c.Name)
		case !runs[len(runs)-1].over:
			t.w.violate("CPA-16", "%s is over, and %s runs", p.uid, c.Name)
		case pod.RestartPolicy(&p.pod.Spec, c) == corev1.RestartPolicyAlways && len(c.RestartPolicyRules) == 0:
			t.w.violate("CPA-16", "%s is over, and %s is to run for ever", p.uid, c.Name)
		}
	}
}

// deadline checks INV-28 for a pod that was ended by it.
func (t *truth) deadline(p *podTruth) {
	limit := p.pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		t.w.violate("INV-28", "%s has no deadline and exceeded it", p.uid)
	}
	age := t.w.now - p.since
	if len(t.w.jumps) > 0 && t.w.boots > 1 || p.adopted {
		return // across boots there is only the wall clock, and that was wrong
	}
	if age < time.Duration(*limit)*time.Second-2*time.Second {
		t.w.violate("INV-28", "%s exceeded its deadline of %d s after %v", p.uid, *limit, age)
	}
}

// restartAllBegins checks RR-9: every exit restarts all containers once.
func (t *truth) restartAllBegins(p *podTruth, r *pod.RestartAll) {
	if round, again := p.triggers[r.TriggerID]; again {
		for _, run := range p.runs {
			if run.round > round {
				t.w.violate("RR-9", "the exit of %s restarts all containers of %s a second time", r.TriggerID, p.uid)
			}
		}
	}
	p.triggers[r.TriggerID] = p.round
	p.round++
}

// initialized checks INV-8 at the moment when a pod counts as initialised.
func (t *truth) initialized(k *worker, p *podTruth, in plan.Input, after pod.Record) {
	now := after.Initialized
	if now == in.Record.Initialized || now.SandboxID == "" {
		return
	}
	for _, c := range in.Observed.Containers {
		if c.SandboxID == now.SandboxID && pod.KindOf(&in.Pod.Spec, c.Name) == pod.KindNormal {
			return // it was initialised before, and an agent forgot
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			t.sidecarUp(k, p, c, now.SandboxID, "the pod counts as initialised")
		} else {
			t.initDone(p, c, now.SandboxID, "the pod counts as initialised")
		}
	}
}

func (t *truth) initDone(p *podTruth, c *corev1.Container, sandbox, what string) {
	for _, r := range p.runsOf(c.Name) {
		if r.c.SandboxID == sandbox && r.round == p.round && r.over && r.code == 0 {
			return
		}
	}
	t.w.violate("INV-8", "%s in %s of %s, and init container %s has not succeeded", what, sandbox, p.uid, c.Name)
}

func (t *truth) sidecarUp(k *worker, p *podTruth, c *corev1.Container, sandbox, what string) {
	inst, seen := k.planned.LatestIn(sandbox, c.Name)
	if !seen || inst.State != pod.StateRunning {
		t.w.violate("INV-8", "%s in %s of %s, and sidecar %s is not running", what, sandbox, p.uid, c.Name)
	}
	for _, r := range p.runsOf(c.Name) {
		if r.c.ID == inst.ID && c.StartupProbe != nil && !r.startupVerdict {
			t.w.violate("INV-8", "%s in %s of %s, and sidecar %s has not passed its startup probe", what, sandbox, p.uid, c.Name)
		}
	}
}

// published holds a status against the truth.
func (t *truth) published(k *worker, st *corev1.PodStatus) {
	p := t.of(k.uid)
	if p.shown != "" && st.Phase != p.shown {
		t.w.violate("INV-2", "%s was %s and is %s", k.uid, p.shown, st.Phase)
	}
	if status.Terminal(st.Phase) {
		for _, c := range t.alive(k.uid) {
			if c.intruder {
				continue
			}
			t.w.violate("INV-2", "%s is %s while %s runs", k.uid, st.Phase, c.ID)
		}
		p.shown = st.Phase
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			t.containerStatus(k, p, st, &list[i])
		}
	}
	if newest, ok := k.learned.Newest(); ok && newest.Ready && !newest.HostNetwork && !k.pod.Spec.HostNetwork && st.PodIP != newest.IPs[0] {
		t.w.violate("INV-17", "%s shows address %s, and its newest sandbox has %s", k.uid, st.PodIP, newest.IPs[0])
	}
}

func (t *truth) containerStatus(k *worker, p *podTruth, st *corev1.PodStatus, s *corev1.ContainerStatus) {
	if s.RestartCount < p.counts[s.Name] {
		t.w.violate("INV-11", "the restart count of %s of %s fell from %d to %d", s.Name, p.uid, p.counts[s.Name], s.RestartCount)
	}
	p.counts[s.Name] = s.RestartCount
	runs := p.runsOf(s.Name)
	t.readiness(k, p, s)
	for _, end := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if end == nil || end.ContainerID == "" {
			continue
		}
		for _, r := range runs {
			if r.c.ID != end.ContainerID {
				continue
			}
			if !r.over && end.Reason != "ContainerStatusUnknown" {
				t.w.violate("INV-12", "%s of %s is shown as ended while it runs", r.c.ID, p.uid)
			}
			if r.over && end.ExitCode == 0 && r.c.ExitCode != 0 {
				t.w.violate("INV-12", "%s of %s ended with %d and is shown as a success", r.c.ID, p.uid, r.c.ExitCode)
			}
		}
	}
	if p.intruded || st.Phase != corev1.PodSucceeded || pod.KindOf(&p.pod.Spec, s.Name) != pod.KindNormal {
		return
	}
	for _, r := range runs {
		if r.over && r.c.ExitCode == 0 {
			return
		}
	}
	t.w.violate("INV-12", "%s is Succeeded, and %s never ended with success", p.uid, s.Name)
}
