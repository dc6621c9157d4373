package podworkers_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// TestSlowPull: a slow pull of one container holds up neither another container
// nor what happens to it meanwhile.
func TestSlowPull(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["pull slow:1"] = 10 * time.Minute
		p := newPod("p", container("slow"), container("quick"))
		box := b.start(p)
		b.settle()
		require.Equal(b, map[string]string{"quick": "running"}, b.states(p.UID))
		require.Contains(b, b.paper.report(p.UID).Waits, pod.Wait{Container: "slow", Reason: "ContainerCreating"})
		b.exit(p.UID, "quick", 1)
		b.seen(box, p)
		require.Equal(b, 2, b.did("start", "quick"))
		time.Sleep(10 * time.Minute)
		b.settle()
		require.Equal(b, 1, b.did("start", "slow"))
		require.Equal(b, 1, b.did("pull", "slow:1"))
	})
}

// TestImageChangesDuringPull: the pull that nobody wants any more is given up,
// without a word, and the other begins.
func TestImageChangesDuringPull(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["pull main:1"] = time.Hour
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.paper.take()
		next := p.DeepCopy()
		next.Spec.Containers[0].Image = "main:2"
		box.PutPod(next)
		b.settle()
		require.Equal(b, "main:2", b.look(p.UID).Containers[0].Image)
		require.Equal(b, 1, b.did("pull", "main:1"))
		require.Equal(b, pod.ClassCancelled, pod.ClassOf(b.result("pull", "main:1")))
		for _, e := range b.paper.take() {
			require.NotContains(b, e, "main:1")
		}
	})
}

// TestImageChangesBackDuringPull: the wish that was given up and comes back is
// granted.
func TestImageChangesBackDuringPull(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["pull main:1"], b.takes["pull main:2"] = time.Minute, time.Hour
		p := newPod("p")
		box := b.start(p)
		b.settle()
		next := p.DeepCopy()
		next.Spec.Containers[0].Image = "main:2"
		box.PutPod(next)
		b.settle()
		box.PutPod(p)
		time.Sleep(2 * time.Minute)
		require.Equal(b, 2, b.did("pull", "main:1"))
		require.Equal(b, "main:1", b.look(p.UID).Containers[0].Image)
	})
}

// TestSwap: Q-33. The old instance runs until the new image is there, and on if
// it never comes.
func TestSwap(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		box := b.start(p)
		b.settle()
		b.takes["pull main:2"] = time.Minute
		b.fails["pull main:2"] = []error{pod.Errorf(pod.ClassNotFound, "ErrImagePull", "no such tag")}
		next := p.DeepCopy()
		next.Spec.Containers[0].Image = "main:2"
		box.PutPod(next)
		time.Sleep(61 * time.Second)
		b.settle()
		require.Empty(b, b.graces())
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		require.Contains(b, warnings(b.paper.take()), `Warning Failed main: Failed to pull image "main:2": no such tag`)
		time.Sleep(2 * time.Minute)
		b.settle()
		require.Equal(b, []string{"main 30s"}, b.graces())
		require.Contains(b, b.paper.take(), "Normal Killing main: Container main definition changed, will be restarted")
		o := b.look(p.UID)
		require.Equal(b, "main:2", o.Containers[0].Image)
		require.Equal(b, pod.StateRunning, o.Containers[0].State)
		require.EqualValues(b, 1, o.Containers[0].Attempt)
		stopped, pulled := b.when("stop", "main 30s")[0], b.when("pull", "main:2")[1].Add(time.Minute)
		require.False(b, stopped.Before(pulled))
	})
}

// TestPullBackoff: C-14, exact: 10 s, 20 s … 300 s, without a call in between.
func TestPullBackoff(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.fails["pull"] = slices.Repeat([]error{pod.Errorf(pod.ClassUnavailable, "RegistryUnavailable", "no route")}, 9)
		p := newPod("p")
		b.start(p)
		time.Sleep(time.Hour)
		b.settle()
		require.Equal(b, []int{10, 20, 40, 80, 160, 300, 300, 300, 300}, gaps(b.when("pull")))
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		require.Less(b, b.did("inspect"), 8)
	})
}

// gaps returns the seconds between moments.
func gaps(at []time.Time) []int {
	var list []int
	for i := 1; i < len(at); i++ {
		list = append(list, int(at[i].Sub(at[i-1]).Round(100*time.Millisecond).Seconds()))
	}
	return list
}
