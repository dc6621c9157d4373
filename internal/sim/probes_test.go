package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/probes"
)

// hear folds verdicts into the record, as package podworkers does.
func (k *worker) hear(verdicts map[string]pod.Verdicts) {
	for _, id := range sortedKeys(verdicts) {
		k.rec = plan.Probed(k.rec, k.observed, verdicts[id])
	}
	if len(verdicts) > 0 && k.wave != nil {
		k.publish()
		k.probe()
	}
}

func (k *worker) tell() {
	k.held = k.failure == nil && probedElse(k.kept, k.rec)
	if !k.held {
		k.w.truth.published(k, k.rec.Status)
	}
}

func (k *worker) tellHeld() {
	if k.held {
		k.write()
		k.tell()
	}
}

func probedElse(a, b pod.Record) bool {
	for name, cr := range b.Containers {
		if a.Containers[name].Probed != cr.Probed {
			return true
		}
	}
	return false
}

func (k *worker) probe() {
	k.setProbes(plan.Probes(plan.ProbeInput{
		Pod: k.pod, Observed: k.learned, Record: k.rec, HostIPs: []string{"192.0.2.7"}, Now: k.w.stamp(),
	}))
}

func (k *worker) setProbes(targets []pod.ProbeTarget) {
	same := slices.EqualFunc(k.probing, targets, func(a, b pod.ProbeTarget) bool {
		return a.ContainerID == b.ContainerID && a.Kind == b.Kind
	})
	if same {
		return
	}
	for i := range targets {
		targets[i].Inherited = k.inherited[targets[i].ContainerID]
	}
	k.probing = targets
	k.a.setProbes(k, targets)
}

// probeKey names a probe of one container instance.
type probeKey struct {
	uid         types.UID
	containerID string
	kind        pod.ProbeKind
}

// probeActor goes through the motions of a probe of package probes.
type probeActor struct {
	a       *agent
	k       *worker
	key     probeKey
	target  pod.ProbeTarget
	counter probes.Counter
	verdict pod.Verdict
	results []probes.Result // that counted
	ended   bool
}

// setProbes replaces the probes of a pod.
func (a *agent) setProbes(k *worker, targets []pod.ProbeTarget) {
	wanted := map[probeKey]bool{}
	for _, t := range targets {
		key := probeKey{k.uid, t.ContainerID, t.Kind}
		wanted[key] = true
		if a.probes[key] != nil {
			continue
		}
		one := &probeActor{a: a, k: k, key: key, target: t, verdict: t.Known}
		a.probes[key] = one
		a.w.truth.probing(one)
		a.w.after(one.first(), one.turn)
	}
	for key, one := range a.probes {
		if key.uid == k.uid && !wanted[key] {
			one.ended = true
			delete(a.probes, key)
		}
	}
}

func (p *probeActor) period() time.Duration {
	return time.Duration(p.target.Probe().PeriodSeconds) * time.Second
}

func (p *probeActor) first() time.Duration {
	delay := max(time.Duration(p.target.Probe().InitialDelaySeconds)*time.Second-p.target.Age, 0)
	if urgent := p.target.Kind != pod.Liveness && p.target.Known == pod.NoVerdict; delay == 0 && p.target.Inherited && !urgent {
		return p.a.w.between(0, p.period())
	}
	return delay
}

func (p *probeActor) alive() bool { return !p.ended && p.a.alive() }

// turn asks the container once, and comes back a period later.
func (p *probeActor) turn() {
	if !p.alive() {
		return
	}
	w, due := p.a.w, p.a.w.now
	w.machine.ask(p, func(r probes.Result) {
		if !p.alive() {
			return
		}
		p.conclude(r)
		for due += p.period(); due < w.now; due += p.period() {
			continue // a turn that was missed is not made up for
		}
		w.at(due, p.turn)
	})
}

func (p *probeActor) conclude(r probes.Result) {
	w := p.a.w
	if r != probes.None {
		p.results = append(p.results, r)
	}
	counter, verdict := probes.Count(p.counter, r, p.target.Probe(), p.verdict)
	p.counter = counter
	if verdict != p.verdict {
		p.verdict = verdict
		w.truth.concluded(p)
		v := pod.Verdicts{ContainerID: p.key.containerID}.With(p.target.Kind, verdict)
		if c := w.machine.container(p.key.containerID); c != nil {
			w.truth.judged(c, v)
		}
		w.logf("%s: %v of %s is %v", p.key.uid, p.target.Kind, p.key.containerID, verdict)
		p.k.putVerdicts(v)
	}
	if probes.Decided(p.target.Kind, verdict) {
		p.ended = true // and stays known, so that it is not begun again
	}
}

// ask is a probe as the container and the runtime live it. A command needs the
// runtime and may hang until its time is over; then it is ended.
func (m *machine) ask(p *probeActor, answer func(probes.Result)) {
	w, id, kind, probe := m.w, p.key.containerID, p.key.kind, p.target.Probe()
	c := m.container(id)
	command := probe.Exec != nil
	if c == nil || (command && (m.down || !c.alive)) {
		w.after(w.between(0, 5*time.Millisecond), func() { answer(probes.None) })
		return
	}
	if c.asked == nil {
		c.asked = map[pod.ProbeKind]*probeActor{}
	}
	if other := c.asked[kind]; other != nil && !other.ended {
		w.violate("INV-26", "the %v probe of %s runs twice at a time", kind, id)
	}
	c.asked[kind] = p
	takes := w.between(time.Millisecond, 300*time.Millisecond)
	hangs := w.chaos.on && w.chance(0.02)
	if hangs {
		takes = time.Duration(probe.TimeoutSeconds) * time.Second
	}
	w.after(takes, func() {
		if c.asked[kind] == p {
			delete(c.asked, kind)
		}
		switch {
		case command && (m.down || !c.alive):
			answer(probes.None) // it was cut off
		case hangs, !c.alive, w.now < c.upAt, w.now < c.sick:
			answer(probes.Failure)
		default:
			answer(probes.Success)
		}
	})
}

// dropAsked ends the commands of an agent that is gone, with its connection.
func (m *machine) dropAsked() {
	for _, c := range m.containers {
		c.asked = nil
	}
}

// startTakes is how long a program needs until it is up.
func (c *chaos) startTakes() time.Duration {
	if c.on && c.w.chance(0.2) {
		return c.w.between(0, time.Minute)
	}
	return c.w.between(0, 2*time.Second)
}

// probing checks what is probed: INV-10, the start of what has started is not
// probed again, and nothing is charged to an instance that is not the newest.
func (t *truth) probing(p *probeActor) {
	c := t.w.machine.container(p.key.containerID)
	if c == nil || c.run == nil {
		return
	}
	if p.target.Kind == pod.Startup && c.run.judged.Startup == pod.Passed {
		t.w.violate("INV-10", "the start of %s succeeded and is probed again", c.ID)
	}
	if p.target.Kind != pod.Startup && c.spec.StartupProbe != nil && c.run.judged.Startup != pod.Passed {
		t.w.violate("PRB-11", "%s is probed for %v and has not started", c.ID, p.target.Kind)
	}
	if p.target.Known != c.run.judged.Of(p.target.Kind) {
		t.w.violate("INV-10", "the %v probe of %s begins with %v, and it was %v", p.target.Kind, c.ID, p.target.Known, c.run.judged.Of(p.target.Kind))
	}
}

// concluded checks PRB-12 with a count of its own.
func (t *truth) concluded(p *probeActor) {
	threshold, want := p.target.Probe().SuccessThreshold, probes.Success
	if p.verdict == pod.Failed {
		threshold, want = p.target.Probe().FailureThreshold, probes.Failure
	}
	row := int32(0)
	for _, r := range slices.Backward(p.results) {
		if r != want {
			break
		}
		row++
	}
	if row != threshold {
		t.w.violate("PRB-12", "the %v probe of %s is %v after %d results in a row instead of %d", p.target.Kind, p.key.containerID, p.verdict, row, threshold)
	}
}

// readiness checks INV-10 on what is shown: a container is ready when its probes
// said so, of this very instance, and stays so until they say something else,
// whatever becomes of the agent.
func (t *truth) readiness(k *worker, p *podTruth, s *corev1.ContainerStatus) {
	spec, kind := pod.Find(&p.pod.Spec, s.Name)
	if s.State.Running == nil || spec == nil || (kind != pod.KindNormal && kind != pod.KindSidecar) {
		return
	}
	for _, r := range p.runs {
		if r.c.ID != s.ContainerID {
			continue
		}
		if k.failure == nil && s.Ready && r.judged.Readiness != r.judgedOnDisk.Readiness {
			t.w.violate("INV-10", "%s of %s is shown as ready=%t, and the next agent would not know", r.c.ID, p.uid, s.Ready)
		}
		started := spec.StartupProbe == nil || r.judged.Startup == pod.Passed
		ready := started && (spec.ReadinessProbe == nil || r.judged.Readiness == pod.Passed)
		if *s.Started != started || s.Ready != ready {
			t.w.violate("INV-10", "%s of %s is shown with started=%t ready=%t, and its probes say %+v", r.c.ID, p.uid, *s.Started, s.Ready, r.judged)
		}
	}
}

// ready reports whether a container is shown as ready.
func (w *world) ready(k *worker, name string) bool {
	for _, list := range [][]corev1.ContainerStatus{k.rec.Status.InitContainerStatuses, k.rec.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Ready
			}
		}
	}
	return false
}
