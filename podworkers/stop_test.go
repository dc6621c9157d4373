package podworkers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// graces lists the stops of a container with their graces.
func (b *bench) graces() []string {
	var list []string
	for _, op := range b.ops() {
		if len(op) > 5 && op[:5] == "stop " {
			list = append(list, op[5:])
		}
	}
	return list
}

// TestEffectiveGrace: 3c "effective grace", PW-5.
func TestEffectiveGrace(t *testing.T) {
	for _, c := range []struct {
		name     string
		spec     *int64
		deletion *int64
		request  *int64
		want     string
	}{
		{name: "the pod's own", spec: new(int64(12)), want: "main 12s"},
		{name: "a request is shorter", spec: new(int64(12)), request: new(int64(5)), want: "main 5s"},
		{name: "a request is longer than the spec and wins over it", spec: new(int64(12)), request: new(int64(20)), want: "main 20s"},
		{name: "the deletion's is shorter than the request", spec: new(int64(12)), deletion: new(int64(6)), request: new(int64(9)), want: "main 6s"},
		{name: "the request is shorter than the deletion's", spec: new(int64(12)), deletion: new(int64(9)), request: new(int64(6)), want: "main 6s"},
		{name: "never less than the least (C-15)", spec: new(int64(30)), request: new(int64(0)), want: "main 2s"},
		{name: "none in the spec", want: "main 30s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				p := newPod("p")
				p.Spec.TerminationGracePeriodSeconds, p.DeletionGracePeriodSeconds = c.spec, c.deletion
				box := b.start(p)
				b.settle()
				box.PutStop(pod.StopRequest{GraceSeconds: c.request, Delete: true})
				b.settle()
				require.Equal(b, []string{c.want}, b.graces())
				require.Len(b, b.paper.gone(), 1)
			})
		})
	}
}

// TestShorterGraceCutsTheStop: PW-6. A stop that runs with a long grace is cut
// short by a shorter one, and by nothing else; the clock does not start again.
func TestShorterGraceCutsTheStop(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.stopTakes["main"] = time.Hour // it does not listen
		p := newPod("p")
		box := b.start(p)
		b.settle()
		began := time.Now()
		box.PutStop(pod.StopRequest{Delete: true})
		time.Sleep(10 * time.Second)
		box.PutStop(pod.StopRequest{Delete: true})                               // again
		box.PutStop(pod.StopRequest{Delete: true, GraceSeconds: new(int64(60))}) // longer: ignored
		b.settle()
		require.Equal(b, []string{"main 30s"}, b.graces())
		box.PutStop(pod.StopRequest{Delete: true, GraceSeconds: new(int64(4))})
		b.settle()
		require.Equal(b, []string{"main 30s", "main 4s"}, b.graces())
		time.Sleep(5 * time.Second)
		b.settle()
		require.Len(b, b.paper.gone(), 1)
		require.InDelta(b, 15, time.Since(began).Seconds(), 1)
		require.Empty(b, warnings(b.paper.take()), "PW-10: a call that was given up is no failure")
	})
}

// TestGraceIsCountedFromTheRequest: INV-5. What the stop waits for is charged to
// the one grace.
func TestGraceIsCountedFromTheRequest(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.stopTakes["main"], b.stopTakes["proxy"] = 25*time.Second, time.Hour
		p := newPod("p")
		proxy := container("proxy")
		always := corev1.ContainerRestartPolicyAlways
		proxy.RestartPolicy = &always
		p.Spec.InitContainers = []corev1.Container{proxy}
		box := b.start(p)
		b.settle()
		require.Equal(b, map[string]string{"main": "running", "proxy": "running"}, b.states(p.UID))
		began := time.Now()
		box.PutStop(pod.StopRequest{Delete: true})
		time.Sleep(40 * time.Second)
		require.Equal(b, []string{"main 30s", "proxy 5s"}, b.graces(), "INV-9: the sidecar last, with what is left")
		require.Len(b, b.paper.gone(), 1)
		require.Less(b, b.when("remove-sandbox")[0].Sub(began), 31*time.Second)
	})
}

// TestStopCutsAStart: PW-7 and INV-3. A stop request gives up what is being
// started: the sandbox, a pull, a start; nothing is started after it.
func TestStopCutsAStart(t *testing.T) {
	for _, op := range []string{"create-sandbox", "pull", "create", "start"} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.takes[op] = time.Hour
				p := newPod("p")
				box := b.start(p)
				b.settle()
				require.Equal(b, 1, b.did(op))
				began, before := time.Now(), len(b.ops())
				box.PutStop(pod.StopRequest{Delete: true})
				b.settle()
				require.Less(b, time.Since(began), time.Second)
				require.Equal(b, []types.UID{p.UID}, b.paper.gone())
				for _, later := range b.ops()[before:] {
					require.NotRegexp(b, "^(create|start|pull)", later)
				}
				require.Empty(b, warnings(b.paper.take()))
			})
		})
	}
}

// TestNoStartAfterStop: INV-3, against an image swap and observations that come
// while the pod ends.
func TestNoStartAfterStop(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.stopTakes["main"] = 20 * time.Second
		p := newPod("p")
		box := b.start(p)
		b.settle()
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()
		before := len(b.ops())
		swap := p.DeepCopy()
		swap.Spec.Containers[0].Image = "main:2"
		box.PutPod(swap)
		box.PutVerdicts(pod.Verdicts{ContainerID: "main-2", Liveness: pod.Failed})
		b.seen(box, p)
		time.Sleep(time.Minute)
		require.Equal(b, []string{"stop-sandbox box-1", "remove main", "remove-sandbox box-1"}, b.ops()[before:])
	})
}

// TestStopEscalates: when stopping fails, stronger means are taken, and the pod
// ends; each failure is told.
func TestStopEscalates(t *testing.T) {
	inBubble(t, func(b *bench) {
		broken := pod.Errorf(pod.ClassUnknown, "", "the shim does not answer")
		b.fails["stop main 30s"] = []error{broken}
		b.takes["stop"] = 0
		p := newPod("p")
		p.Spec.TerminationGracePeriodSeconds = new(int64(120))
		box := b.start(p)
		b.settle()
		b.fails["stop"] = slices.Repeat([]error{broken}, 50)
		box.PutStop(pod.StopRequest{Delete: true})
		time.Sleep(time.Minute)
		b.settle()
		require.Equal(b, 1, b.did("kill"))
		require.Equal(b, 2, len(b.graces()))
		require.Equal(b, []types.UID{p.UID}, b.paper.gone())
		require.Contains(b, b.paper.take(), "Warning FailedKillPod main: the shim does not answer")
	})
}

// TestLeaving: the wave in flight is finished, nothing else is begun, and the
// pods run on.
func TestLeaving(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["create-sandbox"] = 5 * time.Second
		p := newPod("p")
		b.start(p)
		b.settle()
		began := time.Now()
		b.leave()
		require.InDelta(b, 5, time.Since(began).Seconds(), 0.1)
		require.Len(b, b.look(p.UID).Sandboxes, 1)
		require.Zero(b, b.did("create"))
		require.Empty(b, b.paper.gone())
		require.EqualValues(b, 0, b.disk.record(p.UID).Phase)
		b.restart()
		b.resume(p, b.disk.record(p.UID))
		b.settle()
		require.Equal(b, 1, b.did("create-sandbox"))
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		b.leave()
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		b.restart()
	})
}

// TestLeavingIsBounded: what does not end in time is given up.
func TestLeavingIsBounded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["create-sandbox"], b.takes["pull"] = time.Hour, time.Hour
		for _, name := range []string{"a", "b", "c"} {
			b.start(newPod(name))
		}
		b.settle()
		began := time.Now()
		b.leave()
		require.InDelta(b, 10, time.Since(began).Seconds(), 0.1)
		b.restart()
	})
}

// TestLeavingDuringStop: the deadline of a termination survives the agent
// (INV-5).
func TestLeavingDuringStop(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.stopTakes["main"] = time.Hour
		p := newPod("p")
		p.Spec.TerminationGracePeriodSeconds = new(int64(60))
		box := b.start(p)
		b.settle()
		began := time.Now()
		box.PutStop(pod.StopRequest{Delete: true, Reason: "Evicted"})
		time.Sleep(5 * time.Second)
		b.leave() // ten seconds
		rec := b.disk.record(p.UID)
		require.Equal(b, "Evicted", rec.Stop.Reason)
		time.Sleep(15 * time.Second)
		b.restart()
		b.resume(p, rec)
		time.Sleep(time.Minute)
		require.Equal(b, []string{"main 1m0s", "main 30s"}, b.graces())
		require.Len(b, b.paper.gone(), 1)
		require.InDelta(b, 60, b.when("stop-sandbox")[0].Sub(began).Seconds(), 1)
	})
}
