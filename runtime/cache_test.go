package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// fresh inspects with a client that has seen nothing before.
func (f fake) fresh(uid types.UID) pod.Observation {
	f.Helper()
	c := runtime.New(runtime.Options{RuntimeEndpoint: "fake", Dialer: f.server.Bufconn()})
	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			f.Error(err)
		}
	})
	require.NoError(f, c.Connect(ctx))
	o, err := c.Inspect(ctx, uid)
	require.NoError(f, err)
	cancel()
	running.Wait()
	return o
}

// TestCacheTellsTheTruth: whatever happened, a client that remembers sees what
// one sees that remembers nothing.
func TestCacheTellsTheTruth(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", Present: true}}}
			inBubble(t, server, runtime.Options{}, func(f fake) {
				random := rand.New(rand.NewPCG(seed, 1))
				p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"}, corev1.Container{Name: "side", Image: "example/a:1"})
				image, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
				require.NoError(f, err)
				for step := range uint32(25) {
					f.change(p, image.Ref, random, step)
					time.Sleep(time.Duration(random.IntN(3)) * time.Second)
					got, err := f.Inspect(f.Context(), p.UID)
					require.NoError(f, err)
					want := f.fresh(p.UID)
					got.TakenAt = want.TakenAt
					require.Equal(f, want, got)
				}
			})
		})
	}
}

// change does one thing to a pod. Whether it succeeds does not matter.
func (f fake) change(p *corev1.Pod, ref string, random *rand.Rand, step uint32) {
	ctx := f.Context()
	o, err := f.Inspect(ctx, p.UID)
	require.NoError(f, err)
	sandbox, _ := o.Newest()
	var c pod.Container
	if len(o.Containers) > 0 {
		c = o.Containers[random.IntN(len(o.Containers))]
	}
	name := p.Spec.Containers[random.IntN(2)].Name
	var ignored error
	switch random.IntN(10) {
	case 0:
		_, ignored = f.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p, Attempt: step})
	case 1, 2:
		var id string
		id, ignored = f.CreateContainer(ctx, runtime.ContainerRequest{Pod: p, Name: name, Attempt: step, Sandbox: sandbox, ImageRef: ref})
		if random.IntN(2) == 0 {
			ignored = f.StartContainer(ctx, id)
		}
	case 3:
		ignored = f.StartContainer(ctx, c.ID)
	case 4:
		ignored = f.server.Exit(c.ID, int32(random.IntN(3)), "")
	case 5:
		ignored = f.StopContainer(ctx, c.ID, time.Second)
	case 6:
		ignored = f.RemoveContainer(ctx, c.ID)
	case 7:
		ignored = f.server.KillSandbox(sandbox.ID)
	case 8:
		_, ignored = f.List(ctx)
	case 9:
		if random.IntN(3) == 0 {
			ignored = f.RemoveSandbox(ctx, sandbox.ID)
		}
	}
	if ignored != nil {
		f.Logf("step %d: %v", step, ignored)
	}
}

// TestManyAtOnce: all calls may be made from anywhere at once.
func TestManyAtOnce(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", PullLatency: time.Second}}, Latency: map[string]time.Duration{"": time.Millisecond}}
	inBubble(t, server, runtime.Options{MaxSandboxStarts: 4}, func(f fake) {
		var pods sync.WaitGroup
		for i := range 20 {
			pods.Go(func() {
				p := newPod(fmt.Sprintf("p%d", i), corev1.Container{Name: "main", Image: "example/a:1"})
				_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
				require.NoError(f, err)
				image, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
				require.NoError(f, err)
				o, err := f.Inspect(f.Context(), p.UID)
				require.NoError(f, err)
				id, err := f.CreateContainer(f.Context(), runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: image.Ref})
				require.NoError(f, err)
				require.NoError(f, f.StartContainer(f.Context(), id))
				_, err = f.List(f.Context())
				require.NoError(f, err)
				require.NoError(f, f.StopContainer(f.Context(), id, time.Second))
				o, err = f.Inspect(f.Context(), p.UID)
				require.NoError(f, err)
				require.Equal(f, pod.StateExited, o.Containers[0].State)
			})
		}
		pods.Wait()
		require.Equal(f, 1, f.count("PullImage"))
	})
}
