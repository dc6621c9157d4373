package probes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
)

// tries is how often a probe that cannot be made is tried in one turn (PRB-13).
const tries = 3

// maxMessageBytes is how much of what a probe says goes into an event.
const maxMessageBytes = 1 << 10

// Reasons of events, as Kubernetes has them.
const (
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// handler asks a container once. What it says is told to the author of the pod. An
// error means that the container could not be asked.
type handler interface {
	ask(ctx context.Context) (r Result, said string, err error)
}

// worker runs one probe of one container instance. All its fields belong to the
// goroutine of run.
type worker struct {
	m       *Manager
	pod     *corev1.Pod
	target  pod.ProbeTarget
	inbox   Inbox
	slots   *semaphore.Weighted
	handler handler
	failure error // why there is no handler
	timeout time.Duration
	period  time.Duration

	counter Counter
	verdict pod.Verdict
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (m *Manager) newWorker(p *corev1.Pod, t *pod.ProbeTarget, inbox Inbox) *worker {
	probe := t.Probe()
	w := &worker{
		m: m, pod: p, target: *t, inbox: inbox, slots: m.requests, verdict: t.Known,
		timeout: seconds(max(probe.TimeoutSeconds, 1)), period: seconds(max(probe.PeriodSeconds, 1)),
	}
	if probe.Exec != nil {
		w.slots = m.commands
	}
	w.handler, w.failure = m.newHandler(t, w.timeout)
	return w
}

// run asks until there is nothing more to say or ctx ends. A turn that takes
// longer than the period costs the turns that it overlaps; they are not made up
// for.
func (w *worker) run(ctx context.Context) {
	next := time.Now().Add(w.first())
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if w.slots.Acquire(ctx, 1) != nil {
			return // only the end of ctx gets here
		}
		r := w.turn(ctx)
		w.slots.Release(1)
		if ctx.Err() != nil {
			return // it was cut off, which says nothing
		}
		if w.conclude(r) {
			return
		}
		next = next.Add(w.period)
		if late := time.Since(next); late > 0 {
			next = next.Add(late.Truncate(w.period) + w.period)
		}
		timer.Reset(time.Until(next))
	}
}

// first returns the wait before the first turn: what is left of the initial delay
// (PRB-10). What was running when the agent started, and of which something is
// known, is spread over a period, so that the probes of all pods do not begin at
// once (PRB-3).
func (w *worker) first() time.Duration {
	delay := max(seconds(w.target.Probe().InitialDelaySeconds)-w.target.Age, 0)
	urgent := w.target.Kind != pod.Liveness && w.target.Known == pod.NoVerdict
	if delay == 0 && w.target.Inherited && !urgent {
		return spread(w.period)
	}
	return delay
}

// turn asks once, or some times where that did not work, and tells of it.
func (w *worker) turn(ctx context.Context) Result {
	began := time.Now()
	r, said, err := w.ask(ctx)
	if ctx.Err() != nil {
		return None
	}
	w.m.o.Observe(w.pod, w.target.Container.Name, w.target.Kind, r, time.Since(began))
	switch {
	case pod.ClassOf(err) == pod.ClassUnavailable:
		// That the runtime is away is told once, on the node.
		klog.V(2).InfoS("Cannot probe a container while the runtime is away", "pod", klog.KObj(w.pod), "container", w.target.Container.Name, "err", err)
	case err != nil:
		w.tell(reasonUnhealthy, "probe errored and resulted in unknown state: "+err.Error())
	case r == Failure:
		w.tell(reasonUnhealthy, "probe failed: "+said)
	case r == Warning:
		w.tell(reasonWarning, "probe warning: "+said)
	default:
	}
	return r
}

func (w *worker) ask(ctx context.Context) (r Result, said string, err error) {
	if w.failure != nil {
		return None, "", w.failure
	}
	for range tries {
		r, said, err = w.handler.ask(ctx)
		if err == nil || ctx.Err() != nil {
			return r, said, err
		}
		if pod.ClassOf(err) == pod.ClassUnavailable {
			break // the next turn is soon enough
		}
	}
	return None, "", err
}

func (w *worker) tell(reason, message string) {
	w.m.o.Event(w.pod, Event{
		Container: w.target.Container.Name, Reason: reason,
		Message: cut(fmt.Sprintf("%s %s", w.target.Kind, message), maxMessageBytes),
	})
}

// conclude counts a result, puts a verdict that is new, and reports whether there
// is nothing more to find out.
func (w *worker) conclude(r Result) (decided bool) {
	counter, verdict := Count(w.counter, r, w.target.Probe(), w.verdict)
	w.counter = counter
	if verdict != w.verdict {
		w.verdict = verdict
		w.inbox.PutVerdicts(pod.Verdicts{ContainerID: w.target.ContainerID}.With(w.target.Kind, verdict))
	}
	return Decided(w.target.Kind, verdict)
}

// cut returns at most limit bytes of a text, in whole characters.
func cut(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// timedOut reports whether a probe's own time was over.
func timedOut(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
}
