package podworkers

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// wave is the set of actions in flight.
type wave struct {
	cancel context.CancelFunc // of the actions, not of the inspection after them
}

// waveResult is what a wave did and what the pod looks like after it.
type waveResult struct {
	results    []plan.Result
	ended      time.Time
	observed   pod.Observation
	inspectErr error
}

// startWave runs the actions of a plan and inspects the pod, in a goroutine of
// its own that gets copies and answers once. A critical record is stored first.
func (w *worker) startWave(ctx context.Context, next plan.Plan, critical bool) {
	ctx, end := w.begin(ctx, next.Wave)
	actions, cancel := context.WithCancel(ctx)
	w.wave = &wave{cancel: cancel}
	run := waveRun{deps: w.deps, pod: w.pod, specHash: w.specHash, observed: w.observed}
	rec := w.rec
	w.writing = w.writing || critical
	if len(next.Wave) > 0 {
		w.repeats++
		w.slowed = false
	}
	go func() {
		var out waveResult
		var storeErr error
		if critical {
			storeErr = run.deps.Store.PutRecord(run.pod.UID, rec)
			w.written <- writeResult{text: durable(rec), record: rec, err: storeErr}
		}
		if storeErr == nil || rec.Phase != pod.PhaseSyncing {
			out.results = run.all(actions, next.Wave)
		}
		out.ended = time.Now()
		look, done := context.WithTimeout(ctx, w.deps.CallTimeout)
		defer done()
		out.observed, out.inspectErr = w.deps.Runtime.Inspect(look, run.pod.UID)
		end(out.results)
		w.waves <- out
	}()
	if !critical {
		w.write()
	}
}

// begin tells of a wave that begins.
func (w *worker) begin(ctx context.Context, actions []plan.Action) (in context.Context, end func([]plan.Result)) {
	if w.deps.Begin == nil {
		return ctx, func([]plan.Result) {}
	}
	return w.deps.Begin(ctx, Wave{Pod: w.pod, Phase: w.rec.Phase, Actions: actions})
}

// waveRun is what the actions of one wave need to know.
type waveRun struct {
	deps     *Deps
	pod      *corev1.Pod
	specHash string
	observed pod.Observation
}

// all runs the actions side by side; starts run one after another, in order. A
// failed one does not hold up the others (KRS-12).
func (r waveRun) all(ctx context.Context, actions []plan.Action) []plan.Result {
	results := make([]plan.Result, len(actions))
	var wait sync.WaitGroup
	var starts []int
	for i, a := range actions {
		if a.Op == plan.OpStartContainer {
			starts = append(starts, i)
			continue
		}
		wait.Go(func() { results[i] = plan.Result{Action: a, Err: r.one(ctx, a)} })
	}
	for _, i := range starts {
		results[i] = plan.Result{Action: actions[i], Err: r.one(ctx, actions[i])}
	}
	wait.Wait()
	return results
}

// one runs one action.
func (r waveRun) one(ctx context.Context, a plan.Action) error {
	klog.V(4).InfoS("Acting", "pod", klog.KObj(r.pod), "action", a.String())
	rt := r.deps.Runtime
	switch a.Op {
	case plan.OpSetUpVolumes:
		return r.deps.Volumes.SetUp(ctx, r.pod)
	case plan.OpTearDownVolumes:
		return r.deps.Volumes.TearDown(ctx, r.pod.UID)
	case plan.OpCreateSandbox:
		if err := r.deps.Ports.Claim(ctx, r.pod); err != nil {
			return err
		}
		return rt.CreateSandbox(ctx, r.pod, r.specHash, a.Attempt)
	case plan.OpStopSandbox:
		return rt.StopSandbox(ctx, a.ID)
	case plan.OpRemoveSandbox:
		return rt.RemoveSandbox(ctx, a.ID)
	case plan.OpCreateContainer:
		return r.createContainer(ctx, a)
	case plan.OpStartContainer:
		return rt.StartContainer(ctx, a.ID)
	case plan.OpStopContainer:
		r.deps.Sink.Event(r.pod, plan.Event{Container: a.Container, Type: corev1.EventTypeNormal, Reason: "Killing", Message: a.Message})
		return rt.StopContainer(ctx, a.ID, time.Duration(a.GraceSeconds)*time.Second)
	case plan.OpKillContainer:
		return rt.KillContainer(ctx, a.ID)
	case plan.OpRemoveContainer:
		return rt.RemoveContainer(ctx, a.ID)
	case plan.OpPullImage:
		panic("a pull is not part of a wave")
	}
	panic("unknown operation " + a.Op.String())
}

func (r waveRun) createContainer(ctx context.Context, a plan.Action) error {
	var sandbox pod.Sandbox
	for _, s := range r.observed.Sandboxes {
		if s.ID == a.ID {
			sandbox = s
		}
	}
	mounts, err := r.deps.Volumes.Mounts(ctx, r.pod, a.Container, a.Attempt, sandbox.IPs)
	if err != nil {
		return err
	}
	return r.deps.Runtime.CreateContainer(ctx, ContainerRequest{
		Pod: r.pod, Name: a.Container, Attempt: a.Attempt, Sandbox: sandbox,
		Image: a.Image, Mounts: mounts, SpecHash: r.specHash,
	})
}
