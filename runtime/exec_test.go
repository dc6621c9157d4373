package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// startOne starts a pod with one container in the fake and returns its ID.
func (f fake) startOne(name string) string {
	f.Helper()
	p := newPod(name, corev1.Container{Name: "main", Image: "app:1", Command: []string{"sleep", "100000"}})
	_, err := f.CreateSandbox(f.Context(), runtime.SandboxRequest{Pod: p, SpecHash: pod.SpecHash(p)})
	require.NoError(f, err)
	o, err := f.Inspect(f.Context(), p.UID)
	require.NoError(f, err)
	image, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
	require.NoError(f, err)
	id, err := f.CreateContainer(f.Context(), runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: image.Ref})
	require.NoError(f, err)
	require.NoError(f, f.StartContainer(f.Context(), id))
	return id
}

// TestExec: how a command ended, and whose fault it is when it cannot be said.
func TestExec(t *testing.T) {
	inBubble(t, fakecri.Options{PullAny: true}, runtime.Options{}, func(f fake) {
		id := f.startOne("exec")
		run := func(timeout time.Duration, command ...string) (said string, code int, class pod.Class, took time.Duration) {
			began := time.Now()
			said, code, err := f.ExecSync(f.Context(), id, command, timeout, 10)
			return said, code, pod.ClassOf(err), time.Since(began)
		}
		said, code, class, _ := run(time.Second, "sh", "-c", "echo out; echo err >&2; exit 5")
		require.Equal(f, []any{"out\nerr\n", 5, pod.ClassNone}, []any{said, code, class})
		said, _, _, _ = run(time.Second, "echo", strings.Repeat("x", 100))
		require.Equal(f, strings.Repeat("x", 10), said)
		said, _, _, _ = run(time.Second, "sh", "-c", "echo 123456; echo 7890 >&2")
		require.Equal(f, "123456\n789", said)
		_, _, class, took := run(3*time.Second, "sleep", "1000")
		require.Equal(f, pod.ClassDeadline, class)
		require.Equal(f, 3*time.Second, took)
		_, _, class, _ = run(time.Second, "/no/such/program")
		require.Equal(f, pod.ClassUnknown, class)

		f.server.Inject(fakecri.Fault{RPC: "ExecSync"})
		_, _, class, _ = run(time.Second, "true")
		require.Equal(f, pod.ClassUnavailable, class)
		f.server.Inject(fakecri.Fault{RPC: "ExecSync", Err: status.Error(codes.NotFound, "no container")})
		_, _, class, _ = run(time.Second, "true")
		require.Equal(f, pod.ClassNotFound, class)

		// The command hangs, and not even the runtime can end it.
		f.server.Inject(fakecri.Fault{RPC: "ExecSync", Mode: fakecri.HangBefore})
		_, _, class, took = run(time.Second, "true")
		require.Equal(f, pod.ClassDeadline, class)
		require.Less(f, took, 10*time.Second, "nobody waits for it for ever")
		// The runtime as a whole hangs.
		for _, rpc := range []string{"ExecSync", "ContainerStatus"} {
			f.server.Inject(fakecri.Fault{RPC: rpc, Mode: fakecri.HangBefore, Times: -1})
		}
		_, _, class, took = run(time.Second, "true")
		require.Equal(f, pod.ClassUnavailable, class)
		require.Less(f, took, 20*time.Second)
		f.server.ClearFaults()

		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		_, _, err := f.ExecSync(ctx, id, []string{"sleep", "1000"}, time.Minute, 10)
		require.Error(f, err)
	})
}
