package podworkers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// TestWhenItLooksAgain: 3c "requeue delay by error type", PW-9, in this design:
// one exact timer instead of a queue, and nothing where nothing can have changed.
func TestWhenItLooksAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		fail string
		err  error
		want time.Duration // from the failure to the next try
	}{
		{"a phase follows another at once", "", nil, 0},
		{"the network is not ready", "create-sandbox", pod.Errorf(pod.ClassNetwork, "", "no network"), time.Second},
		{"the sandbox cannot be made", "create-sandbox", errors.New("no"), time.Second},
		{"a host port is taken", "create-sandbox", pod.Errorf(pod.ClassConflict, "HostPortConflict", "taken"), time.Second},
		{"the runtime is away", "create-sandbox", pod.Errorf(pod.ClassUnavailable, "", "away"), time.Second},
		{"a call took too long", "create-sandbox", pod.Errorf(pod.ClassDeadline, "", "late"), time.Second},
		{"a container cannot be made", "create", errors.New("no"), time.Second},
		{"a container cannot be started", "start", errors.New("no"), time.Second},
		{"an image does not come", "pull", errors.New("no"), 10 * time.Second},
		{"a call was given up (PW-10)", "create", pod.Errorf(pod.ClassCancelled, "", "given up"), 0},
		{"the name is in use", "create", pod.Errorf(pod.ClassExists, "", "reserved"), time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				if c.err != nil {
					b.fails[c.fail] = []error{c.err}
				}
				p := newPod("p")
				b.start(p)
				time.Sleep(time.Minute)
				require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
				if c.err != nil {
					at := b.when(c.fail)
					require.Len(b, at, 2)
					require.InDelta(b, c.want.Seconds(), at[1].Sub(at[0]).Seconds(), 0.01)
				}
				calls := b.count()
				time.Sleep(time.Hour) // no resync: nothing can have changed
				require.Equal(b, calls, b.count())
			})
		})
	}
}

// TestDeadlineWakes: SP-2 and INV-28. A pod ends when its time is up, without
// anybody asking.
func TestDeadlineWakes(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p")
		p.Spec.ActiveDeadlineSeconds = new(int64(90))
		began := time.Now()
		b.start(p)
		time.Sleep(2 * time.Minute)
		require.InDelta(b, 90, b.when("stop", "main 30s")[0].Sub(began).Seconds(), 0.1)
		r := b.paper.report(p.UID)
		require.Equal(b, "DeadlineExceeded", r.Status.Reason)
		require.Nil(b, r.Deletion)
	})
}
