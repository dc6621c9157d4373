package plan

import (
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Compute decides what the pod needs next. Equal input gives an equal plan.
func Compute(in Input) Plan {
	if in.Observed.TakenAt.IsZero() || in.Observed.TakenAt.Before(in.ActedAt) {
		return Plan{InspectFirst: true, Record: in.Record}
	}
	b := &builder{Input: in, rec: learn(in)}
	switch b.rec.Phase {
	case pod.PhaseSyncing:
		b.sync()
	case pod.PhaseTerminating:
		b.terminate()
	case pod.PhaseTerminated:
		b.clean()
	case pod.PhaseFinished:
	}
	b.plan.Record = b.rec
	return b.plan
}

// builder collects one plan. It lives for one call of Compute.
type builder struct {
	Input
	rec    pod.Record // the record as it will be remembered
	active pod.Sandbox
	plan   Plan
}

func (b *builder) do(a Action) { b.plan.Wave = append(b.plan.Wave, a) }

func (b *builder) wake(at pod.Stamp) { b.plan.WakeAt = pod.Earliest(b.plan.WakeAt, at) }

func (b *builder) wait(container, reason, message string) {
	b.plan.Why = append(b.plan.Why, pod.Wait{Container: container, Reason: reason, Message: message})
}

func (b *builder) event(container, kind, reason, message string) {
	b.plan.Events = append(b.plan.Events, Event{Container: container, Type: kind, Reason: reason, Message: message})
}

// held reports whether a failure still asks to wait, and notes the wake-up.
func (b *builder) held(f *pod.Failure) bool {
	if f == nil || f.Until.Until(b.Now) <= 0 {
		return false
	}
	b.wake(f.Until)
	return true
}

// enter moves the record to the next phase.
func (b *builder) enter(next pod.Phase) { b.rec.Phase = b.rec.Phase.To(next) }

// sync plans for a pod that should run.
func (b *builder) sync() {
	if b.rec.Stop != nil {
		b.beginTermination()
		return
	}
	if b.pastDeadline() {
		return
	}
	if !b.sandbox() {
		return
	}
	if b.restartAll() {
		return // it stops strays as it stops the others
	}
	b.strays()
	b.ephemeral()
	if b.initialize() {
		b.normal()
	}
}

// pastDeadline ends a pod that outlived activeDeadlineSeconds (SP-2, INV-28).
func (b *builder) pastDeadline() bool {
	limit := b.Pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return false
	}
	at := b.rec.Started.Add(seconds(*limit))
	if at.Until(b.Now) > 0 {
		b.wake(at)
		return false
	}
	b.rec.Outcome = &pod.Outcome{
		Phase:   corev1.PodFailed,
		Reason:  "DeadlineExceeded",
		Message: "Pod was active on the node longer than the specified deadline",
	}
	b.event("", corev1.EventTypeNormal, "DeadlineExceeded", b.rec.Outcome.Message)
	b.finish()
	return true
}

// finish ends a pod of its own accord: nothing is left to run.
func (b *builder) finish() {
	b.rec = RequestStop(b.rec, b.Pod, pod.StopRequest{}, b.Now)
	b.beginTermination()
}

func (b *builder) beginTermination() {
	b.enter(pod.PhaseTerminating)
	b.plan.Wave, b.plan.Pulls, b.plan.Why, b.plan.WakeAt = nil, nil, nil, pod.Stamp{}
	b.terminate()
}
