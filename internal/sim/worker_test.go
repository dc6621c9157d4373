package sim

import (
	"bytes"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// Delays of the worker's loop, as in package podworkers.
const (
	inspectRetryMin = 500 * time.Millisecond
	inspectRetryMax = 10 * time.Second
	storeRetry      = 5 * time.Second
	repeatDelayMin  = 100 * time.Millisecond
	repeatDelayMax  = 10 * time.Second
	repeatsFree     = 3
)

// worker goes through the motions of a worker of package podworkers.
type worker struct {
	a        *agent
	w        *world
	uid      types.UID
	pod      *corev1.Pod
	specHash string

	rec      pod.Record
	observed pod.Observation
	actedAt  time.Time
	waits    []pod.Wait
	last     plan.Plan

	inherited map[string]bool
	probing   []pod.ProbeTarget
	learned   pod.Observation // that the record was made from
	held      bool

	newest  plan.Plan       // what the last computation said
	planned pod.Observation // what it was made from

	wave    *scope
	inWave  *corev1.Pod // the pod that the wave in flight was planned for
	pulls   map[string]*pull
	writing bool
	stored  []byte
	kept    pod.Record // what stored holds
	failure error
	// writeAgain is when a failed write may be tried again.
	writeAgain moment

	inspectFailures, repeats int
	slowed                   bool
	notBefore                moment
	timer                    int // the newest timer; older ones are void
	timerSet                 bool

	mail  mail
	awake bool
	ended bool
}

type mail struct {
	pod         *corev1.Pod
	stop        *pod.StopRequest
	observation *pod.Observation
	verdicts    map[string]pod.Verdicts
}

func newWorker(a *agent, p *corev1.Pod, specHash string, rec pod.Record) *worker {
	k := &worker{
		a: a, w: a.w, uid: p.UID, pod: p, specHash: specHash, rec: rec,
		pulls: map[string]*pull{}, inherited: map[string]bool{},
	}
	for _, cr := range rec.Containers {
		if cr.Running != "" {
			k.inherited[cr.Running] = true
		}
	}
	k.stored, k.kept = encode(rec), rec
	k.wake()
	return k
}

// alive says that neither the worker nor its agent has ended.
func (k *worker) alive() bool { return !k.ended && k.a.gen == k.w.gen }

// put changes the mail and wakes the worker.
func (k *worker) put(change func(*mail)) {
	change(&k.mail)
	k.wake()
}

func (k *worker) putPod(p *corev1.Pod) { k.put(func(m *mail) { m.pod = p }) }

func (k *worker) putStop(req pod.StopRequest) {
	k.put(func(m *mail) {
		if m.stop != nil {
			req = m.stop.Merge(req)
		}
		m.stop = &req
	})
}

func (k *worker) putObservation(o pod.Observation) {
	k.put(func(m *mail) {
		if m.observation == nil || m.observation.TakenAt.Before(o.TakenAt) {
			m.observation = &o
		}
	})
}

func (k *worker) putVerdicts(v pod.Verdicts) {
	k.put(func(m *mail) {
		if m.verdicts == nil {
			m.verdicts = map[string]pod.Verdicts{}
		}
		if old, known := m.verdicts[v.ContainerID]; known {
			v = old.Merge(v)
		}
		m.verdicts[v.ContainerID] = v
	})
}

func (k *worker) wake() {
	if k.awake {
		return
	}
	k.awake = true
	k.w.after(k.w.between(0, time.Millisecond), func() {
		k.awake = false
		k.turn(func() {})
	})
}

// turn is one round of the loop: one message, the mail, one step.
func (k *worker) turn(message func()) {
	if !k.alive() {
		return
	}
	message()
	k.take()
	if k.step() {
		k.ended = true
		k.setProbes(nil)
		k.a.finished(k)
	}
}

func (k *worker) take() {
	m := k.mail
	k.mail = mail{}
	if m.pod != nil {
		k.pod = m.pod
	}
	if m.stop != nil {
		k.requestStop(*m.stop)
	}
	if m.observation != nil && k.observed.TakenAt.Before(m.observation.TakenAt) {
		k.observed = *m.observation
		k.inspectFailures = 0
		k.notBefore = 0
		k.w.truth.viewed(k.uid, k.observed)
	}
	k.hear(m.verdicts)
}

func (k *worker) requestStop(req pod.StopRequest) {
	before := k.rec.Stop
	k.rec = plan.RequestStop(k.rec, k.pod, req, k.w.stamp())
	k.w.truth.stopAsked(k, req)
	if k.wave == nil {
		return
	}
	if before == nil || k.rec.Stop.GraceSeconds < before.GraceSeconds {
		k.wave.cancel()
	}
}

func (k *worker) input() plan.Input {
	return plan.Input{
		Pod: k.pod, Observed: k.observed, Record: k.rec,
		ActedAt: k.actedAt, Now: k.w.stamp(), Limits: plan.DefaultLimits(),
	}
}

func (k *worker) step() (finished bool) {
	if k.wave != nil {
		k.tellHeld()
		return false
	}
	in := k.input()
	next := plan.Compute(in)
	k.w.truth.computed(k, in, next)
	k.rec = next.Record
	k.newest = next
	if !next.InspectFirst {
		k.waits, k.learned = next.Why, k.observed
		k.publish()
		k.probe()
		k.wantPulls(next.Pulls)
	}
	if k.rec.Phase == pod.PhaseFinished {
		return true
	}
	k.act(next)
	return false
}

func (k *worker) act(next plan.Plan) {
	k.slowDown(next)
	if wait := k.notBefore - k.w.now; wait > 0 {
		k.write()
		k.setTimer(next.WakeAt, wait)
		return
	}
	if !next.InspectFirst && len(next.Wave) == 0 {
		k.write()
		k.setTimer(next.WakeAt, 0)
		return
	}
	critical := critical(k.kept, k.rec)
	switch {
	case critical && k.writing:
		k.setTimer(next.WakeAt, 0)
		return
	case critical && k.failure != nil && k.rec.Phase == pod.PhaseSyncing:
		k.write()
		k.setTimer(next.WakeAt, 0)
		return
	}
	k.setTimer(pod.Stamp{}, 0)
	k.startWave(next, critical)
}

func (k *worker) slowDown(next plan.Plan) {
	if next.InspectFirst {
		return
	}
	if fmt.Sprint(next.Wave) != fmt.Sprint(k.last.Wave) {
		k.repeats, k.slowed = 0, false
		k.last = next
		return
	}
	if k.repeats < repeatsFree || k.slowed {
		return
	}
	k.slowed = true
	k.notBefore = k.w.now + min(repeatDelayMin<<min(k.repeats, 10), repeatDelayMax)
}

func (k *worker) setTimer(at pod.Stamp, wait time.Duration) {
	d := time.Duration(-1)
	if wait > 0 {
		d = wait
	}
	if k.failure != nil && !k.writing && k.wave == nil {
		if left := max(k.writeAgain-k.w.now, 0); d < 0 || left < d {
			d = left
		}
	}
	if !at.IsZero() {
		if left := at.Until(k.w.stamp()); d < 0 || left < d {
			d = left + time.Millisecond
		}
	}
	k.timer++
	k.timerSet = d >= 0
	if d < 0 {
		return
	}
	mine := k.timer
	k.w.after(d, func() {
		if k.timer == mine {
			k.timerSet = false
			k.turn(func() {})
		}
	})
}

func (k *worker) publish() {
	st := status.Compute(status.Input{
		Pod: k.pod, Observed: k.learned, Record: k.rec, Waits: k.waits,
		HostIPs: []string{"192.0.2.7"}, Now: k.w.stamp(),
	})
	if k.rec.Status == nil || !equality.Semantic.DeepEqual(*k.rec.Status, st) {
		k.rec.Status = &st
	}
	k.tell()
}

// critical is the rule by which package podworkers stores a record first.
func critical(before, after pod.Record) bool {
	if before.Phase != after.Phase || !reflect.DeepEqual(before.Stop, after.Stop) ||
		!reflect.DeepEqual(before.Outcome, after.Outcome) || !reflect.DeepEqual(before.RestartAll, after.RestartAll) {
		return true
	}
	for name, a := range after.Containers {
		b := before.Containers[name]
		if a.Replacing != b.Replacing || a.Retry != b.Retry || a.Backoff != b.Backoff || !reflect.DeepEqual(a.Exit, b.Exit) {
			return true
		}
	}
	return false
}

func (k *worker) write() {
	if k.writing {
		return
	}
	text := encode(k.rec)
	if bytes.Equal(text, k.stored) {
		k.failure = nil
		return
	}
	if k.failure != nil && k.w.now < k.writeAgain {
		return
	}
	k.writing = true
	rec := k.rec
	k.w.disk.putRecord(k.uid, rec, text, func(err error) {
		k.turn(func() { k.writeDone(text, rec, err) })
	})
}

func (k *worker) writeDone(text []byte, rec pod.Record, err error) {
	k.writing = false
	if err != nil {
		k.failed(err)
		return
	}
	k.stored, k.kept, k.failure = text, rec, nil
}

func (k *worker) failed(err error) { k.failure, k.writeAgain = err, k.w.now+storeRetry }
