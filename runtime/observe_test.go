package runtime_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// spanKey is where the tests keep the name of what a call is made for.
type spanKey struct{}

// tracer notes what calls are made for.
type tracer struct {
	mu    sync.Mutex // guards what follows
	calls []string   // as "PullImage for web: ok"
	pulls []time.Duration
	sizes []int64
}

func (r *tracer) trace(ctx context.Context, op string) (traced context.Context, end func(error)) {
	who, _ := ctx.Value(spanKey{}).(string)
	return ctx, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		how := "ok"
		if err != nil {
			how = "failed"
		}
		r.calls = append(r.calls, op+" for "+who+": "+how)
	}
}

func (r *tracer) pulled(took time.Duration, sizeBytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulls, r.sizes = append(r.pulls, took), append(r.sizes, sizeBytes)
}

func (r *tracer) told(call string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.calls {
		if c == call {
			n++
		}
	}
	return n
}

// TestTrace: calls have the values of the context that they are made with, also
// the pull that runs beyond its caller and is shared with another.
func TestTrace(t *testing.T) {
	r := &tracer{}
	server := fakecri.Options{Images: []fakecri.Image{
		{Ref: "example/a:1", PullLatency: time.Minute, Size: 7 << 20},
		{Ref: "example/b:1", PullError: status.Error(codes.NotFound, "not found")},
	}}
	inBubble(t, server, runtime.Options{Trace: r.trace, Pulled: r.pulled}, func(f fake) {
		var wanting sync.WaitGroup
		for _, who := range []string{"first", "second"} {
			ctx := context.WithValue(f.Context(), spanKey{}, who)
			wanting.Go(func() {
				_, err := f.pull(ctx, "example/a:1")
				require.NoError(f, err)
			})
			synctest.Wait()
		}
		wanting.Wait()
		require.Equal(f, 1, r.told("PullImage for first: ok"))
		require.Zero(f, r.told("PullImage for second: ok"))
		_, err := f.pull(context.WithValue(f.Context(), spanKey{}, "third"), "example/b:1")
		require.Error(f, err)
		require.Equal(f, 1, r.told("PullImage for third: failed"))
		require.Equal(f, []time.Duration{time.Minute}, r.pulls, "one for two callers, none for a failure")
		require.Equal(f, []int64{7 << 20}, r.sizes)
	})
}

// TestTraceOfPullEnds: that a pull has the values of its first caller does not
// make it end with them.
func TestTraceOfPullEnds(t *testing.T) {
	r := &tracer{}
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", PullLatency: time.Minute}}}
	inBubble(t, server, runtime.Options{Trace: r.trace}, func(f fake) {
		ctx, giveUp := context.WithCancel(context.WithValue(f.Context(), spanKey{}, "first"))
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := f.pull(ctx, "example/a:1"); first <- err }()
		synctest.Wait()
		go func() { _, err := f.pull(f.Context(), "example/a:1"); second <- err }()
		synctest.Wait()
		giveUp()
		require.True(f, errors.Is(<-first, context.Canceled))
		require.NoError(f, <-second)
		require.Equal(f, 1, r.told("PullImage for first: ok"))
	})
}

// TestPullsWaiting counts the pulls that wait for a slot or for the rate.
func TestPullsWaiting(t *testing.T) {
	var images []fakecri.Image
	for _, ref := range []string{"example/a:1", "example/b:1", "example/c:1"} {
		images = append(images, fakecri.Image{Ref: ref, PullLatency: time.Minute})
	}
	inBubble(t, fakecri.Options{Images: images}, runtime.Options{MaxParallelPulls: 1}, func(f fake) {
		require.Zero(f, f.PullsWaiting())
		var wanting sync.WaitGroup
		for _, image := range images {
			wanting.Go(func() {
				_, err := f.pull(f.Context(), image.Ref)
				require.NoError(f, err)
			})
		}
		var seen []int
		for range 3 {
			time.Sleep(time.Second)
			synctest.Wait()
			seen = append(seen, f.PullsWaiting())
			time.Sleep(time.Minute - time.Second)
		}
		wanting.Wait()
		require.Equal(f, []int{2, 1, 0}, seen)
	})
}
