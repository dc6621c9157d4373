package podworkers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// Delays of the loop itself, for what is no fault of the pod.
const (
	inspectRetryMin = 500 * time.Millisecond
	inspectRetryMax = 10 * time.Second
	storeRetry      = 5 * time.Second
	repeatDelayMin  = 100 * time.Millisecond
	repeatDelayMax  = 10 * time.Second
	repeatsFree     = 3 // equal waves in a row that are not delayed
	tellInspect     = 3 // failed inspections in a row before an event tells
)

// worker owns one pod. All fields belong to the goroutine of run.
type worker struct {
	deps     *Deps
	box      *Mailbox
	pod      *corev1.Pod
	specHash string

	rec      pod.Record
	observed pod.Observation
	actedAt  time.Time
	waits    []pod.Wait
	last     plan.Plan
	// computed is the newest plan, whatever came of it, and planned the observation
	// that it and the record were made from.
	computed plan.Plan
	planned  pod.Observation
	// held says that the newest status waits for the disk.
	held bool

	// inherited are the instances that ran before the agent did, and probing is
	// what the prober was asked for last.
	inherited map[string]bool
	probing   []pod.ProbeTarget

	wave    *wave // in flight, or nil
	waves   chan waveResult
	pulls   map[string]*pull // in flight, by container
	pulled  chan pullResult
	written chan writeResult
	writing bool       // a write is in flight
	stored  []byte     // the durable part as it is on disk
	onDisk  pod.Record // the record that it is the text of
	failure error      // of the last write
	retryAt time.Time  // when to write again after it

	inspectFailures int
	repeats         int  // equal waves in a row
	slowed          bool // the wait for the next of them was set
	notBefore       time.Time
	timer           *time.Timer
}

func newWorker(deps *Deps, box *Mailbox, p *corev1.Pod, specHash string, rec pod.Record) *worker {
	w := &worker{
		deps: deps, box: box, pod: p, specHash: specHash, rec: rec,
		waves: make(chan waveResult, 1), pulls: map[string]*pull{},
		pulled: make(chan pullResult), written: make(chan writeResult, 1),
		inherited: map[string]bool{},
	}
	for _, cr := range rec.Containers {
		if cr.Running != "" {
			w.inherited[cr.Running] = true
		}
	}
	w.stored, w.onDisk = durable(rec), rec
	return w
}

// run works until the pod is finished, or until the agent leaves and the wave
// in flight is over.
func (w *worker) run(ctx context.Context, leaving <-chan struct{}) {
	w.timer = time.NewTimer(time.Hour)
	defer w.timer.Stop()
	w.loop(ctx, leaving)
	w.setProbes(nil)
	w.drain(ctx)
	if w.rec.Phase == pod.PhaseFinished {
		w.deps.Sink.Finished(w.pod)
	}
}

func (w *worker) loop(ctx context.Context, leaving <-chan struct{}) {
	for {
		w.take()
		if w.step(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-leaving:
			return
		case <-w.box.wake:
		case r := <-w.waves:
			w.waveDone(r)
		case r := <-w.pulled:
			w.pullDone(r)
		case r := <-w.written:
			w.writeDone(r)
		case <-w.timer.C:
		}
	}
}

// drain waits for what is in flight and writes what it taught.
func (w *worker) drain(ctx context.Context) {
	w.wantPulls(ctx, nil)
	for w.wave != nil || len(w.pulls) > 0 || w.writing {
		select {
		case r := <-w.waves:
			w.waveDone(r)
		case r := <-w.pulled:
			w.pullDone(r)
		case r := <-w.written:
			w.writeDone(r)
		}
	}
	if w.rec.Phase == pod.PhaseFinished {
		return
	}
	if text := durable(w.rec); !bytes.Equal(text, w.stored) {
		if err := w.deps.Store.PutRecord(w.pod.UID, w.rec); err != nil {
			klog.ErrorS(err, "Cannot store the record of a pod", "pod", klog.KObj(w.pod))
		}
	}
}

// take moves the mail into the worker's own state.
func (w *worker) take() {
	m := w.box.take()
	if m.pod != nil {
		w.pod = m.pod
	}
	if m.stop != nil {
		w.requestStop(*m.stop)
	}
	if m.observation != nil && w.observed.TakenAt.Before(m.observation.TakenAt) {
		w.observed = *m.observation
		w.inspectFailures = 0
		w.notBefore = time.Time{}
	}
	w.hear(m.verdicts)
}

// requestStop merges a stop request into the record. What a wave is doing is
// cut short when it must not go on: starts at once (PW-7), and stops when the
// grace got shorter (PW-6).
func (w *worker) requestStop(req pod.StopRequest) {
	before := w.rec.Stop
	w.rec = plan.RequestStop(w.rec, w.pod, req, w.deps.Now())
	if w.wave == nil {
		return
	}
	if before == nil || w.rec.Stop.GraceSeconds < before.GraceSeconds {
		w.wave.cancel()
	}
}

// step computes and acts. It returns true when the pod is finished.
func (w *worker) step(ctx context.Context) (finished bool) {
	if w.wave != nil {
		w.tellHeld()
		return false
	}
	next := plan.Compute(plan.Input{
		Pod: w.pod, Observed: w.withMessages(w.observed), Record: w.rec,
		ActedAt: w.actedAt, Now: w.deps.Now(), Limits: w.deps.Limits(),
	})
	w.rec = next.Record
	for _, e := range next.Events {
		w.deps.Sink.Event(w.pod, e)
	}
	if !next.InspectFirst {
		w.waits, w.planned = next.Why, w.observed
		w.publish(next)
		w.probe()
		w.wantPulls(ctx, next.Pulls)
	}
	if w.rec.Phase >= pod.PhaseTerminated {
		w.deps.Ports.Release(w.pod.UID)
	}
	if w.rec.Phase == pod.PhaseFinished {
		return true
	}
	w.act(ctx, next)
	return false
}

// act starts the wave of a plan unless something says to wait, and sets the
// timer.
func (w *worker) act(ctx context.Context, next plan.Plan) {
	w.slowDown(next)
	if wait := time.Until(w.notBefore); wait > 0 {
		w.write()
		w.setTimer(next.WakeAt, wait)
		return
	}
	if !next.InspectFirst && len(next.Wave) == 0 {
		w.write()
		w.setTimer(next.WakeAt, 0)
		return
	}
	intent := critical(w.onDisk, w.rec)
	critical := intent && commits(next.Wave)
	switch {
	case critical && w.writing:
		// Two writes at once could land in the wrong order. This one is about to end.
		w.setTimer(next.WakeAt, 0)
		return
	case intent && w.failure != nil && w.rec.Phase == pod.PhaseSyncing:
		// The disk does not take the intent, so nothing new is begun.
		w.write()
		w.setTimer(next.WakeAt, 0)
		return
	}
	w.startWave(ctx, next, critical)
	w.setTimer(pod.Stamp{}, 0)
}

// slowDown guards against a runtime that says it did what it did not: the same
// wave over and over comes at longer and longer intervals instead of spinning.
func (w *worker) slowDown(next plan.Plan) {
	if next.InspectFirst {
		return
	}
	if fmt.Sprint(next.Wave) != fmt.Sprint(w.last.Wave) {
		w.repeats, w.slowed = 0, false
		w.last = next
		return
	}
	if w.repeats < repeatsFree || w.slowed {
		return
	}
	w.slowed = true
	delay := min(repeatDelayMin<<min(w.repeats, 10), repeatDelayMax)
	w.notBefore = time.Now().Add(delay)
	klog.InfoS("The runtime reports no effect of a wave, waiting", "pod", klog.KObj(w.pod), "wave", fmt.Sprint(next.Wave), "delay", delay)
}

// setTimer arms the one timer of the worker. A zero wait and a zero stamp mean
// that only mail wakes it, or a write that is to be tried again.
func (w *worker) setTimer(at pod.Stamp, wait time.Duration) {
	d := time.Duration(-1)
	if wait > 0 {
		d = wait
	}
	if w.failure != nil && !w.writing && w.wave == nil {
		if left := max(time.Until(w.retryAt), 0); d < 0 || left < d {
			d = left
		}
	}
	if !at.IsZero() {
		if left := at.Until(w.deps.Now()); d < 0 || left < d {
			// One tick late is better than one too early, which would spin.
			d = left + time.Millisecond
		}
	}
	w.timer.Stop()
	if d >= 0 {
		w.timer.Reset(d)
	}
}

// waveDone folds the results of a wave and the inspection after it.
func (w *worker) waveDone(r waveResult) {
	w.wave.cancel()
	w.wave = nil
	w.actedAt = r.ended
	now := w.deps.Now()
	w.rec = plan.Settle(w.rec, r.results, w.deps.Limits(), now)
	for _, e := range resultEvents(r.results) {
		w.deps.Sink.Event(w.pod, e)
	}
	if r.inspectErr != nil {
		w.inspectFailures++
		delay := min(inspectRetryMin<<min(w.inspectFailures-1, 10), inspectRetryMax)
		w.notBefore = time.Now().Add(delay)
		klog.V(2).InfoS("Cannot inspect a pod", "pod", klog.KObj(w.pod), "err", r.inspectErr, "retry", delay)
		if w.inspectFailures == tellInspect && pod.ClassOf(r.inspectErr) != pod.ClassUnavailable {
			// That the runtime is away is told once, on the node.
			w.warn(fmt.Sprintf("%v; it is tried again, and nothing is done to the pod before that works", r.inspectErr))
		}
		return
	}
	w.inspectFailures = 0
	w.notBefore = time.Time{}
	if !r.observed.TakenAt.Before(w.observed.TakenAt) {
		w.observed = r.observed // else somebody told of something newer meanwhile
	}
}

// withMessages adds what dead containers left in their message files.
func (w *worker) withMessages(o pod.Observation) pod.Observation {
	var changed []pod.Container
	for i, c := range o.Containers {
		cr := w.rec.Container(c.Name)
		if c.State != pod.StateExited || c.Message != "" || (cr.Exit != nil && cr.Exit.ContainerID == c.ID) {
			continue
		}
		message := w.deps.Volumes.TerminationMessage(w.pod.UID, c.Name, c.Attempt)
		if message == "" {
			continue
		}
		if changed == nil {
			changed = append(changed, o.Containers...)
		}
		changed[i].Message = message
	}
	if changed != nil {
		o.Containers = changed
	}
	return o
}

// publish makes the newest status, and tells it.
func (w *worker) publish(next plan.Plan) {
	st := status.Compute(status.Input{
		Pod: w.pod, Observed: w.planned, Record: w.rec, Waits: w.waits,
		HostIPs: w.deps.HostIPs, Runtime: w.deps.RuntimeName, Now: w.deps.Now(),
	})
	if w.rec.Status == nil || !equality.Semantic.DeepEqual(*w.rec.Status, st) {
		w.rec.Status = &st
	}
	w.computed = next
	w.tell()
}

// durable returns the part of a record that goes to disk.
func durable(rec pod.Record) []byte {
	text, err := json.Marshal(rec)
	if err != nil {
		panic(fmt.Sprintf("cannot encode a record: %v", err)) // a bug in the type
	}
	return text
}
