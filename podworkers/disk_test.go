package podworkers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// TestIntentIsWrittenFirst: DESIGN section 5. What the runtime cannot tell again
// is on disk before the runtime is asked.
func TestIntentIsWrittenFirst(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.disk.set(false, 3*time.Second)
		began := time.Now()
		box.PutStop(pod.StopRequest{Delete: true})
		time.Sleep(2 * time.Second)
		require.Empty(b, b.graces())
		time.Sleep(2 * time.Second)
		require.Equal(b, 3*time.Second, b.when("stop", "main 30s")[0].Sub(began))
		require.NotNil(b, b.disk.record(p.UID).Stop)
		require.Equal(b, pod.PhaseTerminating, b.disk.record(p.UID).Phase)
	})
	inBubble(t, func(b *bench) { // an end is kept before the next instance starts; making it can be looked up
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.disk.set(false, 3*time.Second)
		ended := time.Now()
		b.exit(p.UID, "main", 4)
		b.seen(box, p)
		time.Sleep(5 * time.Second)
		require.InDelta(b, 0, b.when("create")[1].Sub(ended).Seconds(), 0.1)
		require.InDelta(b, 3, b.when("start")[1].Sub(ended).Seconds(), 0.1)
		require.EqualValues(b, 4, b.disk.record(p.UID).Containers["main"].Exit.ExitCode)
	})
}

// TestTheRestIsWrittenBeside: a slow disk does not slow a pod down by what can be
// told again.
func TestTheRestIsWrittenBeside(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.disk.set(false, time.Minute)
		p := newPod("p")
		b.start(p)
		b.settle()
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		require.Equal(b, 1, b.disk.written(), "one write at a time")
		time.Sleep(3 * time.Minute)
		require.Equal(b, 2, b.disk.written())
		require.EqualValues(b, 1, b.disk.record(p.UID).Containers["main"].Attempts)
	})
}

// TestWritesInOrder: an intent waits for the older write that is under way, or
// that one could land on top of it.
func TestWritesInOrder(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.disk.set(false, 10*time.Second)
		p := newPod("p")
		box := b.start(p)
		b.settle() // the first write is under way
		box.PutStop(pod.StopRequest{Delete: true, GraceSeconds: new(int64(5))})
		b.settle()
		b.disk.set(false, 0)
		require.Empty(b, b.graces())
		time.Sleep(11 * time.Second)
		b.settle()
		require.Len(b, b.paper.gone(), 1)
		require.NotNil(b, b.disk.record(p.UID).Stop, "the newest is what stays")
	})
}

// TestFullDiskHoldsRestarts: what ended is not run again while that it ended
// cannot be kept; it is tried every few seconds, and goes on when there is room.
func TestFullDiskHoldsRestarts(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.disk.set(true, 0)
		b.exit(p.UID, "main", 1)
		b.seen(box, p)
		before := b.disk.written()
		time.Sleep(10 * time.Minute)
		require.Equal(b, 1, b.did("start"))
		require.InDelta(b, 120, b.disk.written()-before, 5, "every five seconds")
		for range 50 {
			box.Poke()
			b.settle()
		}
		require.LessOrEqual(b, b.disk.written()-before, 126, "mail does not hurry it")
		require.Equal(b, 1, b.did("start"))
		require.LessOrEqual(b, b.did("create"), 2, "what is made once can be found again")
		b.disk.set(false, 0)
		time.Sleep(6 * time.Second)
		require.Equal(b, 2, b.did("start"))
		require.Equal(b, 2, b.did("create"))
		require.Equal(b, "running", b.states(p.UID)["main"])
		require.NotNil(b, b.disk.record(p.UID).Containers["main"].Exit)
	})
}

// TestFullDiskLetsGo: a pod that is to end ends, disk or no disk.
func TestFullDiskLetsGo(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.disk.set(true, 0)
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()
		require.Equal(b, []string{"main 30s"}, b.graces())
		require.Len(b, b.paper.gone(), 1)
	})
}

// TestFullDiskAtRest: a pod that only waits, with something to write, does not
// spin.
func TestFullDiskAtRest(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.disk.set(true, 0)
		p := newPod("p")
		b.start(p)
		b.settle()
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID), "nothing of it must be known later")
		calls, writes := b.count(), b.disk.written()
		time.Sleep(10 * time.Minute)
		require.Equal(b, calls, b.count())
		require.InDelta(b, 120, b.disk.written()-writes, 5)
		b.disk.set(false, 0)
		time.Sleep(10 * time.Second)
		writes = b.disk.written()
		time.Sleep(time.Hour)
		require.Equal(b, writes, b.disk.written())
		require.EqualValues(b, 1, b.disk.record(p.UID).Containers["main"].Attempts)
	})
}

// TestFinishedWaitsForTheDisk: a worker has ended only when its last write has,
// so that nothing is written of a pod that was forgotten.
func TestFinishedWaitsForTheDisk(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.disk.set(false, 5*time.Second)
		box.PutStop(pod.StopRequest{Delete: true})
		deadline := time.Now().Add(5 * time.Minute)
		for len(b.paper.gone()) == 0 && time.Now().Before(deadline) {
			time.Sleep(100 * time.Millisecond)
		}
		require.Len(b, b.paper.gone(), 1)
		writes := slices.Clone(b.disk.writes)
		for _, at := range writes {
			require.GreaterOrEqual(b, time.Since(at), 4900*time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Equal(b, len(writes), b.disk.written())
	})
}

// TestLeavingKeepsWhatItLearnt: the last wave's results are on disk when the
// agent has left.
func TestLeavingKeepsWhatItLearnt(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["start"] = 4 * time.Second
		p := newPod("p")
		p.Spec.RestartPolicy = "Never"
		b.crashes["main"] = 5
		b.start(p)
		b.settle()
		b.leave()
		rec := b.disk.record(p.UID)
		require.EqualValues(b, 1, rec.Containers["main"].Attempts)
		b.restart()
		b.resume(p, rec)
		b.settle()
		require.Equal(b, 1, b.did("start"), "INV-7")
	})
}
