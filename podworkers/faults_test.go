package podworkers_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// TestRestartBackoff: BO and Q-27. 10 s, 20 s, 40 s … counted from the end of
// the instance, exact, with no call while it waits.
func TestRestartBackoff(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.crashes["main"] = 1
		p := newPod("p")
		b.start(p)
		time.Sleep(30 * time.Minute)
		b.settle()
		require.Equal(b, []int{0, 10, 20, 40, 80, 160, 300, 300, 300, 300}, gaps(b.when("start"))[:10])
		calls := b.count()
		started := b.when("start")
		time.Sleep(time.Until(started[len(started)-1].Add(299 * time.Second)))
		require.Equal(b, calls, b.count(), "no polling")
		require.Equal(b, "CrashLoopBackOff", b.paper.report(p.UID).Waits[0].Reason)
		n := 0
		for _, e := range b.paper.take() {
			if e == "Warning BackOff main: Back-off restarting failed container main in pod shop/p" {
				n++
			}
		}
		require.Equal(b, len(started)-1, n, "once for each end that waits")
	})
}

// TestBackoffSurvives: the agent in between neither shortens nor lengthens it,
// and mail does not either (INV-14).
func TestBackoffSurvives(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.crashes["main"] = 1
		p := newPod("p")
		box := b.start(p)
		time.Sleep(time.Minute + 15*time.Second) // the wait of 80 s has begun at 70 s
		for range 20 {
			box.Poke()
			b.seen(box, p)
		}
		require.Equal(b, 5, b.did("start"))
		b.leave()
		time.Sleep(10 * time.Second)
		b.restart()
		b.resume(p, b.disk.record(p.UID))
		time.Sleep(90 * time.Second)
		require.Equal(b, []int{0, 10, 20, 40, 80}, gaps(b.when("start")))
	})
}

// TestRuntimeAway: no hot loop while the runtime is away, and a quick recovery.
func TestRuntimeAway(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, q := newPod("runs"), newPod("begins")
		box := b.start(p)
		b.settle()
		b.change(func() { b.down = true })
		b.exit(p.UID, "main", 1)
		b.seen(box, p)
		b.start(q)
		before := b.count()
		time.Sleep(10 * time.Minute)
		require.Less(b, b.count()-before, 200, "two pods, ten minutes")
		b.change(func() { b.down = false })
		back := time.Now()
		time.Sleep(12 * time.Second)
		b.settle()
		require.Equal(b, "running", b.states(p.UID)["main"])
		require.Equal(b, "running", b.states(q.UID)["main"])
		require.Less(b, b.when("start")[1].Sub(back), 11*time.Second)
	})
}

// TestObservationEndsTheWait: what the PLEG sees after the runtime is back ends
// the wait at once.
func TestObservationEndsTheWait(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.down = true
		p := newPod("p")
		box := b.start(p)
		time.Sleep(5 * time.Minute)
		b.change(func() { b.down = false })
		calls := b.count()
		b.seen(box, p)
		require.Greater(b, b.count(), calls)
		require.Equal(b, "running", b.states(p.UID)["main"])
	})
}

// TestFailedInspections: retried at growing intervals, with the state left as it
// was known.
func TestFailedInspections(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.fails["inspect"] = slices.Repeat([]error{errors.New("cannot list")}, 7)
		p := newPod("p")
		b.start(p)
		time.Sleep(2 * time.Minute)
		b.settle()
		at := b.when("inspect")[:8]
		var waits []time.Duration
		for i := range at[1:] {
			waits = append(waits, at[i+1].Sub(at[i]).Round(100*time.Millisecond))
		}
		require.Equal(b, []time.Duration{500e6, 1e9, 2e9, 4e9, 8e9, 10e9, 10e9}, waits)
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
	})
}

// TestHungInspection: it is bounded, and a pod beside it is not held up
// (INV-23).
func TestHungInspection(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, q := newPod("stuck"), newPod("fine")
		b.takes["inspect uid-stuck"] = time.Hour
		b.start(p)
		b.start(q)
		b.settle()
		require.Equal(b, map[string]string{"main": "running"}, b.states(q.UID))
		time.Sleep(10 * time.Minute)
		require.InDelta(b, 5, b.did("inspect", "uid-stuck"), 1)
		b.change(func() { delete(b.takes, "inspect uid-stuck") })
		time.Sleep(3 * time.Minute)
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
	})
}

// TestNoEffect: a runtime that says it did what it did not is asked less and
// less often, and soon after it works again all is well.
func TestNoEffect(t *testing.T) {
	for _, op := range []string{"create-sandbox", "create", "start"} {
		inBubble(t, func(b *bench) {
			b.inert[op] = true
			p := newPod("p")
			b.start(p)
			time.Sleep(time.Minute)
			first := b.did(op)
			require.Less(b, first, 20, op)
			time.Sleep(time.Hour)
			require.InDelta(b, 360, b.did(op)-first, 20, "every ten seconds")
			b.change(func() { b.inert[op] = false })
			time.Sleep(11 * time.Second)
			require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		})
	}
}

// TestRetriesAreNotSlowed: failures have their own delays, and the guard against
// waves without effect adds nothing to them.
func TestRetriesAreNotSlowed(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.fails["create-sandbox"] = slices.Repeat([]error{errors.New("no bridge")}, 8)
		b.start(newPod("p"))
		time.Sleep(5 * time.Minute)
		require.Equal(b, []int{1, 2, 4, 8, 16, 30, 30, 30}, gaps(b.when("create-sandbox")))
	})
}

// TestLostReply: the call had its effect, the answer was lost: nothing is done
// twice (INV-1).
func TestLostReply(t *testing.T) {
	for _, op := range []string{"create-sandbox", "create", "start"} {
		inBubble(t, func(b *bench) {
			p := newPod("p")
			lossy := &lossy{machine: b.machine, op: op, lose: 1}
			b.deps.Runtime = lossy
			b.start(p)
			time.Sleep(time.Minute)
			require.Equal(b, 1, b.did(op), op)
			require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		})
	}
}

// TestVerdict: a failed liveness probe restarts the instance that it is about,
// and no other (INV-10).
func TestVerdict(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := container("main")
		c.LivenessProbe = newProbe(7)
		p := newPod("p", c)
		box := b.start(p)
		b.settle()
		id := b.look(p.UID).Containers[0].ID
		box.PutVerdicts(pod.Verdicts{ContainerID: "an-older-one", Liveness: pod.Failed})
		b.settle()
		require.Empty(b, b.graces())
		box.PutVerdicts(pod.Verdicts{ContainerID: id, Liveness: pod.Failed})
		b.settle()
		require.Equal(b, []string{"main 7s"}, b.graces())
		require.Equal(b, 2, b.did("start"))
		require.Contains(b, b.paper.take(), "Normal Killing main: Container main failed liveness probe, will be restarted")
	})
}

// TestSandboxGone: a sandbox that dies is replaced once, and told once.
func TestSandboxGone(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.paper.take()
		b.change(func() { b.sandboxes[p.UID][0].Ready = false })
		b.exit(p.UID, "main", 137)
		b.seen(box, p)
		require.Equal(b, 2, b.did("create-sandbox"))
		require.Equal(b, "running", b.states(p.UID)["main"])
		require.Equal(b, 1, b.did("stop-sandbox", "box-1"))
		n := 0
		for _, e := range b.paper.take() {
			if e == "Normal SandboxChanged : Pod sandbox changed, it will be killed and re-created: it is not ready any more." {
				n++
			}
		}
		require.Equal(b, 1, n)
	})
}

// TestManyPods: workers do not know of each other.
func TestManyPods(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["pull"], b.takes["create-sandbox"], b.takes["start"] = 3*time.Second, 2*time.Second, time.Second
		var uids []types.UID
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			p := newPod(name)
			uids = append(uids, p.UID)
			b.start(p)
		}
		time.Sleep(4100 * time.Millisecond)
		for _, uid := range uids {
			require.Equal(b, map[string]string{"main": "running"}, b.states(uid))
		}
	})
}
