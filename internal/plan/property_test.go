package plan_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// TestComputeHolds plays random histories of one pod, with faults, and holds
// every plan against the invariants. At the end the pod is deleted, and nothing
// of it may stay.
func TestComputeHolds(t *testing.T) { rapid.Check(t, history) }

// FuzzCompute lets the fuzzer choose the histories. Its seeds are long enough
// for whole ones.
func FuzzCompute(f *testing.F) {
	for seed := range byte(20) {
		bytes := make([]byte, 16<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(bytes) // it never fails
		f.Add(bytes)
	}
	f.Fuzz(rapid.MakeFuzz(history))
}

func history(t *rapid.T) {
	w := newWorld(drawPod(t))
	for range rapid.IntRange(5, 60).Draw(t, "steps") {
		w.step(t)
		if w.rec.Phase == pod.PhaseFinished {
			return // what lands after this belongs to nobody; orphans are found elsewhere
		}
	}
	w.rec = plan.RequestStop(w.rec, w.pod, pod.StopRequest{Delete: true}, w.now)
	for range 60 {
		w.checkedPlan(t)
		if w.rec.Phase == pod.PhaseFinished {
			require.Empty(t, w.runtime.Containers)
			require.Empty(t, w.runtime.Sandboxes)
			return
		}
		w.execute(t, nil)
		w.now, w.mono = w.now.Add(5*time.Second), w.mono.Add(5*time.Second)
	}
	t.Fatalf("the pod does not end:\n%v", w.last)
}

// step is one thing that happens, and the plan after it.
func (w *world) step(t *rapid.T) {
	switch rapid.IntRange(0, 15).Draw(t, "step") {
	case 0:
		w.disturb(t)
	case 1:
		d := time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second
		w.now, w.mono = w.now.Add(d), w.mono.Add(d)
	case 2:
		w.now.Wall = w.now.Wall.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "jump")) * time.Second)
	case 3:
		w.restartAgent(t)
	case 4:
		if oneIn(t, 3, "reboot") {
			w.reboot(t)
		}
	case 5:
		w.pod = drawEdit(t, w.pod)
	case 6:
		w.drawVerdict(t)
	case 7:
		if oneIn(t, 6, "stop") {
			n := rapid.Int64Range(-1, 60).Draw(t, "grace")
			before := w.rec.Stop
			w.rec = plan.RequestStop(w.rec, w.pod, pod.StopRequest{GraceSeconds: &n, Delete: oneIn(t, 2, "delete")}, w.now)
			if before != nil { // PW-6, INV-5
				require.LessOrEqual(t, w.rec.Stop.GraceSeconds, before.GraceSeconds)
				require.False(t, before.Deadline.Before(w.rec.Stop.Deadline))
			}
		}
	default:
		w.execute(t, w.drawFaults(t))
	}
	w.checkedPlan(t)
}

func (w *world) drawVerdict(t *rapid.T) {
	if len(w.runtime.Containers) == 0 {
		return
	}
	c := rapid.SampledFrom(w.runtime.Containers).Draw(t, "probed")
	draw := func() pod.Verdict { return pod.Verdict(rapid.IntRange(0, 2).Draw(t, "verdict")) } //nolint:gosec // a small number
	w.rec = plan.Probed(w.rec, w.snapshot(), pod.Verdicts{ContainerID: c.ID, Startup: draw(), Liveness: draw(), Readiness: draw()})
}

func names(actions []plan.Action) []string {
	var out []string
	for _, a := range actions {
		out = append(out, strings.TrimSpace(a.Op.String()+" "+a.Container))
	}
	return out
}

// checkedPlan computes a plan, checks it, and keeps its record.
func (w *world) checkedPlan(t *rapid.T) {
	w.mono = w.mono.Add(time.Millisecond)
	in := plan.Input{
		Pod: w.pod, Observed: w.snapshot(), Record: w.rec,
		ActedAt: w.actedAt, Now: w.now, Limits: plan.DefaultLimits(),
	}
	before := text(t, in)
	p := plan.Compute(in)
	require.Equal(t, p, plan.Compute(in), "equal input gives an equal plan")
	require.Equal(t, before, text(t, in), "the input is not changed")

	again := in
	again.Record = p.Record
	same := plan.Compute(again)
	require.Empty(t, same.Events, "CPA-23: nothing new, no new event")
	require.Equal(t, p.Wave, same.Wave, "CPA-23: nothing new, the same wave")
	require.Equal(t, p.Pulls, same.Pulls, "CPA-23: nothing new, the same pulls")

	checkWave(t, in, p)
	checkRecord(t, in.Record, p.Record, in.Now)
	if !p.WakeAt.IsZero() {
		require.Positive(t, p.WakeAt.Until(w.now), "Q-27: a wake-up that has passed would spin")
	}
	w.last, w.rec = p, p.Record
}

func text(t *rapid.T, in plan.Input) string {
	out, err := json.Marshal(in)
	require.NoError(t, err)
	return string(out)
}

// checkWave holds the actions against what was observed.
func checkWave(t *rapid.T, in plan.Input, p plan.Plan) {
	newest, _ := in.Observed.Newest()
	seen := map[string]bool{}
	for _, a := range append(slices.Clone(p.Pulls), p.Wave...) {
		begins := a.Op == plan.OpCreateSandbox || a.Op == plan.OpCreateContainer || a.Op == plan.OpStartContainer ||
			a.Op == plan.OpPullImage || a.Op == plan.OpSetUpVolumes
		require.False(t, begins && in.Record.Stop != nil, "INV-3: %v after the stop", a)
		key := a.ID
		switch a.Op {
		case plan.OpCreateContainer, plan.OpPullImage:
			key = a.Op.String() + " " + a.Container
		case plan.OpCreateSandbox, plan.OpSetUpVolumes, plan.OpTearDownVolumes:
			key = a.Op.String()
		default:
		}
		require.False(t, seen[key], "one action at most: %v", a)
		seen[key] = true
		switch a.Op {
		case plan.OpCreateContainer, plan.OpStartContainer:
			require.True(t, newest.Ready, "%v outside of a ready sandbox", a)
			for _, c := range in.Observed.Containers {
				alive := c.State == pod.StateRunning || c.State == pod.StateUnknown
				require.False(t, c.Name == a.Container && alive, "INV-1: %v beside %s", a, c.ID)
			}
		case plan.OpCreateSandbox:
			require.False(t, in.Observed.Live(), "INV-17: %v beside something that runs", a)
		default:
		}
		checkTarget(t, in.Observed, newest.ID, a)
	}
}

// checkTarget holds that an action names something that was observed.
func checkTarget(t *rapid.T, o pod.Observation, newest string, a plan.Action) {
	switch a.Op {
	case plan.OpCreateContainer:
		require.Equal(t, newest, a.ID, "%v in an old sandbox", a)
	case plan.OpStopSandbox, plan.OpRemoveSandbox:
		require.True(t, slices.ContainsFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.ID == a.ID }), "%v names nothing", a)
	case plan.OpStartContainer, plan.OpStopContainer, plan.OpKillContainer, plan.OpRemoveContainer:
		c, found := o.ByID(a.ID)
		require.True(t, found, "%v names nothing", a)
		require.Equal(t, c.Name, a.Container)
		if a.Op == plan.OpStartContainer {
			require.Equal(t, pod.StateCreated, c.State)
			require.Equal(t, newest, c.SandboxID, "%v in an old sandbox", a)
		}
		if a.Op == plan.OpStopContainer {
			require.GreaterOrEqual(t, a.GraceSeconds, int64(2), "C-15")
		}
	default:
	}
}

// checkRecord holds that what is remembered is not taken back.
func checkRecord(t *rapid.T, before, after pod.Record, now pod.Stamp) {
	require.GreaterOrEqual(t, after.Phase, before.Phase, "PW-2")
	require.GreaterOrEqual(t, after.Sandbox.Attempts, before.Sandbox.Attempts, "INV-11")
	for name, cr := range before.Containers {
		require.GreaterOrEqual(t, after.Containers[name].Attempts, cr.Attempts, "INV-11: %s", name)
	}
	if before.Outcome != nil {
		require.Equal(t, before.Outcome, after.Outcome, "INV-2")
	}
	if before.Stop != nil {
		require.Equal(t, before.Stop.GraceSeconds, after.Stop.GraceSeconds)
		require.LessOrEqual(t, after.Stop.Deadline.Until(now), before.Stop.Deadline.Until(now), "INV-5")
		require.Equal(t, before.Stop.Delete, after.Stop.Delete)
	}
	require.True(t, before.Started.IsZero() || before.Started.Wall.Equal(after.Started.Wall), "INV-28")
}
