package runtime_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// fake is a client of a runtime in memory.
type fake struct {
	testing.TB // of the bubble
	*runtime.Client
	server *fakecri.Server
}

// inBubble runs a test in a bubble, where time passes only when all wait.
func inBubble(t *testing.T, server fakecri.Options, client runtime.Options, test func(f fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		s := fakecri.New(server)
		client.PodLogsDir = t.TempDir()
		client.RuntimeEndpoint, client.Dialer = "fake", s.Bufconn()
		c := runtime.New(client)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		require.NoError(t, c.Connect(t.Context()))
		test(fake{TB: t, Client: c, server: s})
		cancel()
		require.NoError(t, <-ended)
		s.Close()
	})
}

func (f fake) count(rpc string) int {
	n := 0
	for _, call := range f.server.Calls() {
		if call.RPC == rpc {
			n++
		}
	}
	return n
}

func (f fake) pull(ctx context.Context, image string) (runtime.Image, error) {
	p := newPod("pulls", corev1.Container{Name: "main", Image: image, ImagePullPolicy: corev1.PullAlways})
	return f.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
}

// TestPullQueue: Q-21. Beyond the rate and the parallel limit pulls wait, and
// none fails.
func TestPullQueue(t *testing.T) {
	var images []fakecri.Image
	for i := range 6 {
		images = append(images, fakecri.Image{Ref: fmt.Sprintf("example/%d:1", i), PullLatency: 10 * time.Second})
	}
	inBubble(t, fakecri.Options{Images: images}, runtime.Options{MaxParallelPulls: 2, PullQPS: 1, PullBurst: 1}, func(f fake) {
		began := time.Now()
		var wanting sync.WaitGroup
		for i := range images {
			wanting.Go(func() {
				image, err := f.pull(f.Context(), images[i].Ref)
				require.NoError(f, err)
				require.Equal(f, 10*time.Second, image.Took)
				require.LessOrEqual(f, image.Waited, 21*time.Second)
			})
		}
		wanting.Wait()
		// Two at a time, ten seconds each, the second one second late.
		require.Equal(f, 31*time.Second, time.Since(began))
		var starts []time.Duration
		for _, call := range f.server.Calls() {
			if call.RPC == "PullImage" {
				starts = append(starts, call.Began.Sub(began))
			}
		}
		slices.Sort(starts)
		require.Equal(f, []time.Duration{0, time.Second, 10 * time.Second, 11 * time.Second, 20 * time.Second, 21 * time.Second}, starts)
	})
}

// TestPullShared: Q-22, per image and credentials.
func TestPullShared(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", PullLatency: time.Minute}}}
	inBubble(t, server, runtime.Options{}, func(f fake) {
		p := newPod("pulls", corev1.Container{Name: "main", Image: "example/a:1", ImagePullPolicy: corev1.PullAlways})
		var wanting sync.WaitGroup
		results := make([]error, 6)
		for i := range results {
			ctx, cancel := context.WithCancel(f.Context())
			defer cancel()
			if i == 0 {
				ctx, cancel = context.WithTimeout(f.Context(), time.Second)
				defer cancel()
			}
			request := runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]}
			if i == 5 {
				request.Auths = []runtime.Auth{{Username: "somebody"}}
			}
			wanting.Go(func() { _, results[i] = f.PullImage(ctx, request) })
			synctest.Wait()
		}
		wanting.Wait()
		require.Equal(f, pod.ClassDeadline, pod.ClassOf(results[0]))
		for _, err := range results[1:] {
			require.NoError(f, err)
		}
		require.Equal(f, 2, f.count("PullImage"), "one for each set of credentials")

		// All give up: the runtime is told, and the next caller is not answered
		// with the cancelled pull.
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := f.pull(ctx, "example/a:1")
		require.Equal(f, pod.ClassDeadline, pod.ClassOf(err))
		_, err = f.pull(f.Context(), "example/a:1")
		require.NoError(f, err)
		require.Equal(f, time.Minute+time.Second, time.Since(began))
	})
}

// TestPullEndsWithRun: whoever waits when the agent leaves is told at once.
func TestPullEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakecri.New(fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", PullLatency: time.Hour}}})
		c := runtime.New(runtime.Options{RuntimeEndpoint: "fake", Dialer: s.Bufconn()})
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		tasks.Go(func() { require.NoError(t, c.Run(ctx)) })
		require.NoError(t, c.Connect(ctx))
		tasks.Go(func() {
			_, err := fake{TB: t, Client: c, server: s}.pull(t.Context(), "example/a:1")
			require.Equal(t, pod.ClassCancelled, pod.ClassOf(err))
		})
		synctest.Wait()
		cancel()
		tasks.Wait()
		s.Close()
	})
}

func TestPullFailures(t *testing.T) {
	say := func(code codes.Code, text string) fakecri.Image {
		return fakecri.Image{PullError: status.Error(code, text)}
	}
	for name, test := range map[string]struct {
		image  fakecri.Image
		class  pod.Class
		reason string
	}{
		"coded not found":     {say(codes.NotFound, "failed to resolve: x: not found"), pod.ClassNotFound, "ErrImagePull"},
		"denied and absent":   {say(codes.NotFound, "pull access denied, repository does not exist or may require authorization: authorization failed"), pod.ClassUnauthorized, "ErrImagePull"},
		"forbidden":           {say(codes.Unknown, "unexpected status from HEAD request: 403 Forbidden"), pod.ClassUnauthorized, "ErrImagePull"},
		"refused":             {say(codes.Unknown, "dial tcp 192.0.2.1:443: connect: connection refused"), pod.ClassUnavailable, "RegistryUnavailable"},
		"server error":        {say(codes.Unknown, "unexpected status: 503 Service Unavailable"), pod.ClassUnavailable, "RegistryUnavailable"},
		"told by the runtime": {say(codes.Unknown, "RegistryUnavailable: pull of x failed"), pod.ClassUnavailable, "RegistryUnavailable"},
		"signature":           {say(codes.Unknown, "SignatureValidationFailed: x"), pod.ClassInvalid, "SignatureValidationFailed"},
		"runtime gone":        {say(codes.Unavailable, "error reading from server: EOF"), pod.ClassUnavailable, "ErrImagePull"},
		"stalled":             {say(codes.Canceled, "context canceled"), pod.ClassUnavailable, "RegistryUnavailable"},
		"anything else":       {say(codes.Unknown, "no space left on device"), pod.ClassUnknown, "ErrImagePull"},
	} {
		test.image.Ref = "example/a:1"
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakecri.Options{Images: []fakecri.Image{test.image}}, runtime.Options{}, func(f fake) {
				_, err := f.pull(f.Context(), "example/a:1")
				require.Equal(f, test.class, pod.ClassOf(err), "%v", err)
				require.Equal(f, test.reason, pod.ReasonOf(err, ""), "%v", err)
			})
		})
	}
}

// TestInspectImageFails: IMG-5.
func TestInspectImageFails(t *testing.T) {
	inBubble(t, fakecri.Options{PullAny: true}, runtime.Options{}, func(f fake) {
		f.server.Inject(fakecri.Fault{RPC: "ImageStatus", Err: status.Error(codes.Internal, "metadata is broken")})
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		_, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
		require.Equal(f, runtime.ReasonInspectImage, pod.ReasonOf(err, ""))
		require.Zero(f, f.count("PullImage"))
	})
}

// TestSandboxStarts: only so many sandboxes are in the making at one time.
func TestSandboxStarts(t *testing.T) {
	server := fakecri.Options{Latency: map[string]time.Duration{"RunPodSandbox": time.Second}}
	inBubble(t, server, runtime.Options{MaxSandboxStarts: 3}, func(f fake) {
		began := time.Now()
		var making sync.WaitGroup
		for i := range 9 {
			making.Go(func() {
				_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: newPod(fmt.Sprintf("p%d", i))})
				require.NoError(f, err)
			})
		}
		making.Wait()
		require.Equal(f, 3*time.Second, time.Since(began))
	})
}

// TestNetworkNotReady: Q-28. The class comes from the runtime's condition.
func TestNetworkNotReady(t *testing.T) {
	inBubble(t, fakecri.Options{}, runtime.Options{}, func(f fake) {
		f.server.SetReady(true, false, "cni plugin not initialized")
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: newPod("a")})
		require.Equal(f, pod.ClassNetwork, pod.ClassOf(err), "%v", err)
		require.Equal(f, runtime.ReasonNetwork, pod.ReasonOf(err, ""))
		got, err := f.Status(f.Context())
		require.NoError(f, err)
		require.True(f, got.RuntimeReady)
		require.False(f, got.NetworkReady)
		require.Equal(f, "cni plugin not initialized", got.NetworkMessage)
	})
}

// TestClasses: the class of an error is that of its code, whatever it says.
func TestClasses(t *testing.T) {
	for code, want := range map[codes.Code]pod.Class{
		codes.NotFound: pod.ClassNotFound, codes.AlreadyExists: pod.ClassExists, codes.Unavailable: pod.ClassUnavailable,
		codes.DeadlineExceeded: pod.ClassDeadline, codes.Canceled: pod.ClassCancelled, codes.InvalidArgument: pod.ClassInvalid,
		codes.FailedPrecondition: pod.ClassInvalid, codes.Unknown: pod.ClassUnknown, codes.Internal: pod.ClassUnknown,
	} {
		inBubble(t, fakecri.Options{}, runtime.Options{}, func(f fake) {
			f.server.Inject(fakecri.Fault{RPC: "StartContainer", Err: status.Error(code, "connection refused: not found")})
			err := f.StartContainer(f.Context(), "c-1")
			require.Equal(f, want, pod.ClassOf(err), "%v", code)
			require.Equal(f, runtime.ReasonRunContainer, pod.ReasonOf(err, ""))
			require.EqualError(f, err, "cannot start container c-1: connection refused: not found")
			require.Equal(f, code, status.Code(err), "the answer itself is still there for who looks")
		})
	}
}

// TestHungRuntime: a call ends with its timeout (C-21), a stop with its grace on
// top, and either with its context at once.
func TestHungRuntime(t *testing.T) {
	inBubble(t, fakecri.Options{}, runtime.Options{}, func(f fake) {
		f.server.Inject(fakecri.Fault{Mode: fakecri.HangBefore, Times: -1})
		for name, test := range map[string]struct {
			want time.Duration
			call func(context.Context) error
		}{
			"list":    {2 * time.Minute, func(ctx context.Context) error { _, err := f.List(ctx); return err }},
			"stop":    {2*time.Minute + 30*time.Second, func(ctx context.Context) error { return f.StopContainer(ctx, "c", 30*time.Second) }},
			"kill":    {2 * time.Minute, func(ctx context.Context) error { return f.KillContainer(ctx, "c") }},
			"no time": {2*time.Minute + 2*time.Second, func(ctx context.Context) error { return f.StopContainer(ctx, "c", 0) }}, // C-15
		} {
			began := time.Now()
			err := test.call(f.Context())
			require.Equal(f, pod.ClassDeadline, pod.ClassOf(err), name)
			require.Equal(f, test.want, time.Since(began), name)
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.Equal(f, pod.ClassDeadline, pod.ClassOf(f.StopContainer(ctx, "c", time.Minute)))
		require.Equal(f, time.Second, time.Since(began))
	})
}

// TestVanishing: what is gone between listing and status is not in the
// observation, and no error.
func TestVanishing(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", Present: true}}}
	inBubble(t, server, runtime.Options{}, func(f fake) {
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.NoError(f, err)
		f.server.Inject(fakecri.Fault{RPC: "PodSandboxStatus", Err: status.Error(codes.NotFound, "gone")})
		o, err := f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		require.Empty(f, o.Sandboxes)
		f.server.Inject(fakecri.Fault{RPC: "PodSandboxStatus", Err: status.Error(codes.Internal, "broken")})
		_, err = f.Inspect(f.Context(), p.UID)
		require.Error(f, err, "an unknown part is no observation")
		o, err = f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		require.Len(f, o.Sandboxes, 1)
	})
}

// TestForeign: what others made is reported and is nobody's pod.
func TestForeign(t *testing.T) {
	inBubble(t, fakecri.Options{}, runtime.Options{}, func(f fake) {
		p := newPod("mine")
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.NoError(f, err)
		theirs := runForeign(f, f.server)
		listing, err := f.List(f.Context())
		require.NoError(f, err)
		require.Equal(f, []string{theirs}, listing.Foreign)
		require.Len(f, listing.Pods, 1)
		o, err := f.Inspect(f.Context(), "uid-theirs")
		require.NoError(f, err)
		require.Empty(f, o.Sandboxes)
	})
}

// TestEphemeralTarget: SEC-3.
func TestEphemeralTarget(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", Present: true}}}
	inBubble(t, server, runtime.Options{}, func(f fake) {
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "example/a:1"}, TargetContainerName: "main",
		}}
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.NoError(f, err)
		o, err := f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		image, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
		require.NoError(f, err)
		request := runtime.ContainerRequest{Pod: p, Name: "debug", Sandbox: o.Sandboxes[0], ImageRef: image.Ref}
		_, err = f.CreateContainer(f.Context(), request)
		require.ErrorContains(f, err, "target container main does not run")
		request.Name = "main"
		id, err := f.CreateContainer(f.Context(), request)
		require.NoError(f, err)
		require.NoError(f, f.StartContainer(f.Context(), id))
		request.Name = "debug"
		_, err = f.CreateContainer(f.Context(), request)
		require.NoError(f, err)
	})
}

// TestEvents: hints of our pods only, and an error when the stream breaks.
func TestEvents(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", Present: true}}}
	inBubble(t, server, runtime.Options{}, func(f fake) {
		out := make(chan runtime.Hint, 100)
		broke := make(chan error, 1)
		go func() { broke <- f.Events(f.Context(), out) }()
		synctest.Wait()
		runForeign(f, f.server)
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		sandbox, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.NoError(f, err)
		synctest.Wait()
		for len(out) > 0 {
			hint := <-out
			require.Equal(f, p.UID, hint.UID)
			require.Equal(f, sandbox, hint.ID)
		}
		got, err := f.Status(f.Context())
		require.NoError(f, err)
		require.Equal(f, runtime.EventsCRI, got.Events)
		f.server.Crash()
		require.Equal(f, pod.ClassUnavailable, pod.ClassOf(<-broke))
		require.Equal(f, pod.ClassUnavailable, pod.ClassOf(f.Events(f.Context(), out)))
		require.NoError(f, f.server.Resume())
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		for f.Events(ctx, out) != nil && ctx.Err() == nil {
			time.Sleep(time.Second) // as its caller would
		}
		require.NotNil(f, ctx.Err(), "it follows again")
	})
}

// TestNoEvents: a runtime without any event service is an error at once.
func TestNoEvents(t *testing.T) {
	inBubble(t, fakecri.Options{NoEvents: true}, runtime.Options{}, func(f fake) {
		err := f.Events(f.Context(), make(chan runtime.Hint))
		require.Equal(f, pod.ClassInvalid, pod.ClassOf(err), "%v", err)
		got, err := f.Status(f.Context())
		require.NoError(f, err)
		require.Equal(f, runtime.EventsNone, got.Events)
	})
}

// TestConnectWaits: the client tries for as long as it takes.
func TestConnectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakecri.New(fakecri.Options{})
		dialer := s.Bufconn()
		s.Crash()
		c := runtime.New(runtime.Options{RuntimeEndpoint: "fake", Dialer: dialer, ResolvConf: "/etc/resolv.conf"})
		_, err := c.List(t.Context())
		require.Equal(t, pod.ClassUnavailable, pod.ClassOf(err))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Hour)
		wait, done := context.WithTimeout(ctx, time.Second)
		require.Equal(t, pod.ClassDeadline, pod.ClassOf(c.Connect(wait)))
		done()
		require.NoError(t, s.Resume())
		require.NoError(t, c.Connect(ctx))
		_, err = c.List(ctx)
		require.NoError(t, err)
		require.Error(t, c.Run(ctx), "a client runs once")
		cancel()
		require.NoError(t, <-ended)
		s.Close()
	})
}

// TestLostReply: whoever tries again after a lost reply is told that the attempt
// is taken, and finds what was made by looking.
func TestLostReply(t *testing.T) {
	server := fakecri.Options{Images: []fakecri.Image{{Ref: "example/a:1", Present: true}}}
	inBubble(t, server, runtime.Options{}, func(f fake) {
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		for _, rpc := range []string{"RunPodSandbox", "CreateContainer"} {
			f.server.Inject(fakecri.Fault{RPC: rpc, Mode: fakecri.FailAfter})
		}
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.Equal(f, pod.ClassUnavailable, pod.ClassOf(err))
		_, err = f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.Equal(f, pod.ClassExists, pod.ClassOf(err))
		o, err := f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		require.Len(f, o.Sandboxes, 1)
		image, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
		require.NoError(f, err)
		request := runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: image.Ref}
		_, err = f.CreateContainer(f.Context(), request)
		require.Equal(f, pod.ClassUnavailable, pod.ClassOf(err))
		_, err = f.CreateContainer(f.Context(), request)
		require.Equal(f, pod.ClassExists, pod.ClassOf(err))
		o, err = f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		require.Len(f, o.Containers, 1)
		require.Equal(f, pod.StateCreated, o.Containers[0].State)
		require.Equal(f, "example/a:1", o.Containers[0].Image)
	})
}

// TestBadRequests: what can never succeed says so, and names it.
func TestBadRequests(t *testing.T) {
	inBubble(t, fakecri.Options{}, runtime.Options{ResolvConf: "/nonexistent/resolv.conf"}, func(f fake) {
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		_, err := f.CreateContainer(f.Context(), runtime.ContainerRequest{Pod: p, Name: "other"})
		require.Equal(f, pod.ClassInvalid, pod.ClassOf(err))
		require.ErrorContains(f, err, "container other of pod shop/a")
		_, err = f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.Equal(f, "ConfigPodSandboxError", pod.ReasonOf(err, ""))
		require.ErrorContains(f, err, "/nonexistent/resolv.conf")
		require.Zero(f, f.count("RunPodSandbox"))
	})
	inBubble(t, fakecri.Options{}, runtime.Options{}, func(f fake) {
		p := newPod("a", corev1.Container{Name: "main", Image: "example/a:1"})
		_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p})
		require.NoError(f, err)
		o, err := f.Inspect(f.Context(), p.UID)
		require.NoError(f, err)
		_, err = f.CreateContainer(f.Context(), runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: "sha256:gone"})
		require.Equal(f, pod.ClassNotFound, pod.ClassOf(err))
		require.ErrorContains(f, err, "sha256:gone")
	})
	c := runtime.New(runtime.Options{})
	require.Error(t, c.Run(t.Context()), "no endpoint")
}
