package agent

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/events"
	"nodelet.dev/nodelet/internal/metrics"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/tracing"
	"nodelet.dev/nodelet/pleg"
	"nodelet.dev/nodelet/podworkers"
	"nodelet.dev/nodelet/runtime"
)

// Metrics implements server.Agent.
func (a *Agent) Metrics() http.Handler { return a.metrics.Handler() }

// tellMetrics tells that the metrics are not where the configuration wants them,
// and when they are after all.
func (a *Agent) tellMetrics(err error) {
	if err != nil {
		a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "MetricsUnavailable", err.Error())
		return
	}
	a.events.Add(a.nodeReference(), corev1.EventTypeNormal, "MetricsAvailable", "The metrics are served on "+a.cfg.MetricsBindAddress)
}

// observeRuntime joins the runtime with those who watch it.
func observeRuntime(o *runtime.Options, m *metrics.Metrics, t *tracing.Tracer) {
	o.Observe = func(op string, took time.Duration, err error) { m.Operation(op, took, err != nil) }
	o.Pulled = m.Pulled
	if t != nil {
		o.Trace = t.Call
	}
}

func plegOptions(m *metrics.Metrics) pleg.Options {
	o := pleg.Defaults()
	o.Observe = m.Relist
	return o
}

// eventLog counts what it takes.
type eventLog struct {
	*events.Log
	count func(kind, reason string)
}

// Add records an event and counts it.
func (l eventLog) Add(ref corev1.ObjectReference, kind, reason, message string) {
	l.count(kind, reason)
	l.Log.Add(ref, kind, reason, message)
}

// countedStore counts the writes of the workers.
type countedStore struct {
	podworkers.Store
	metrics *metrics.Metrics
}

// PutRecord implements podworkers.Store.
func (s countedStore) PutRecord(uid types.UID, rec pod.Record) error {
	began := time.Now()
	err := s.Store.PutRecord(uid, rec)
	s.metrics.Written(time.Since(began), err != nil)
	return err
}

// look counts the node for a scrape. Pods that somebody else left in the runtime
// are not in it.
func (a *Agent) look() metrics.State {
	s := metrics.State{
		Containers: map[string]int{}, Working: map[metrics.Working]int{}, Waits: map[string]int{}, Sources: map[string]metrics.Source{},
		PullsWaiting: a.runtime.PullsWaiting(), Listed: a.pleg.Health().Relisted,
	}
	for _, source := range a.sourceStates() {
		s.Sources[source.Name] = metrics.Source{Pods: source.Pods, Problems: len(source.Problems)}
		s.Desired += source.Pods
	}
	for _, r := range a.board.held() {
		countWaits(&s, r)
	}
	for _, r := range a.board.working() {
		countWaits(&s, r)
		if !over(r.Status.Phase) {
			s.Active++
		}
		if newest, ok := r.Observed.Newest(); ok && newest.Ready {
			s.RunningPods++
		}
		for _, c := range r.Observed.Containers {
			s.Containers[c.State.String()]++
		}
		s.Working[working(r)]++
	}
	return s
}

func countWaits(s *metrics.State, r podworkers.Report) {
	for _, w := range r.Waits {
		s.Waits[w.Reason]++
	}
}

// working returns where a pod is, in the words of the kubelet.
func working(r podworkers.Report) metrics.Working {
	w := metrics.Working{Lifecycle: "sync", Config: "desired"}
	switch r.Phase {
	case pod.PhaseSyncing:
	case pod.PhaseTerminating:
		w.Lifecycle = "terminating"
	case pod.PhaseTerminated, pod.PhaseFinished:
		w.Lifecycle = "terminated"
	}
	if r.Deletion != nil {
		w.Config = "orphan"
	}
	return w
}

// over reports whether a pod ran to its end.
func over(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// beginWave watches a wave that does something.
func (a *Agent) beginWave(ctx context.Context, w podworkers.Wave) (in context.Context, end func([]plan.Result)) {
	if len(w.Actions) == 0 {
		return ctx, func([]plan.Result) {}
	}
	began := time.Now()
	operation := a.courses.acts(w)
	in, endSpan := a.traceWave(ctx, w)
	return in, func(results []plan.Result) {
		a.courses.rests(w.Pod.UID)
		a.metrics.Work(operation, time.Since(began))
		for _, r := range results {
			a.countResult(w.Pod, r)
		}
		endSpan(failureOf(results))
	}
}

// countResult counts the attempts to make sandboxes and containers.
func (a *Agent) countResult(p *corev1.Pod, r plan.Result) {
	switch r.Action.Op {
	case plan.OpCreateSandbox:
		a.metrics.SandboxTried(r.Err != nil)
	case plan.OpCreateContainer:
		// One that was made is going to be started, and counts then.
		if r.Err != nil {
			a.metrics.ContainerTried(containerType(p, r.Action.Container), pod.ReasonOf(r.Err, runtime.ReasonCreateContainer))
		}
	case plan.OpStartContainer:
		failure := ""
		if r.Err != nil {
			failure = pod.ReasonOf(r.Err, runtime.ReasonRunContainer)
		}
		a.metrics.ContainerTried(containerType(p, r.Action.Container), failure)
	default:
	}
}

// countEnds counts the containers whose end a report tells first.
func (a *Agent) countEnds(before pod.Record, r podworkers.Report) {
	for name, c := range r.Record.Containers {
		known := before.Containers[name].Exit
		if c.Exit != nil && (known == nil || known.ContainerID != c.Exit.ContainerID) {
			a.metrics.ContainerEnded(containerType(r.Pod, name), c.Exit.ExitCode)
		}
	}
}

// containerType returns the kubelet's word for a kind of container.
func containerType(p *corev1.Pod, name string) string {
	switch pod.KindOf(&p.Spec, name) {
	case pod.KindInit, pod.KindSidecar:
		return metrics.TypeInit
	case pod.KindEphemeral:
		return metrics.TypeEphemeral
	case pod.KindNormal, pod.KindUnknown:
	}
	return metrics.TypeContainer
}

// watchedPull hears of a pull on its way.
type watchedPull struct {
	asks  func() // a registry is asked
	ended func(error)
}

// beginPull watches the look for an image, and its pull if it comes to that.
func (a *Agent) beginPull(ctx context.Context, p *corev1.Pod, c *corev1.Container) (context.Context, watchedPull) {
	ctx, endSpan := a.tracePull(ctx, p, c)
	return ctx, watchedPull{
		asks: func() { a.courses.pulls(p.UID, c.Name) },
		ended: func(err error) {
			a.courses.pulled(p.UID, c.Name)
			endSpan(err)
		},
	}
}
