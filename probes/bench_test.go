package probes_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/probes"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// ignore is an inbox that nobody reads.
type ignore struct{}

func (ignore) PutVerdicts(pod.Verdicts) {}

// counted counts the commands that were run.
type counted struct {
	probes.Execer
	n atomic.Int64
}

func (c *counted) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration, limit int) (output string, code int, err error) {
	defer c.n.Add(1)
	return c.Execer.ExecSync(ctx, id, command, timeout, limit)
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProbes measures 1,000 pods with three probes each over a CRI socket: the
// processor time of a probe that the manager runs, against that of the bare call, as
// often per second. The runtime in memory is part of both.
func BenchmarkProbes(b *testing.B) {
	const pods, kinds, period = 1000, 3, 10 * time.Second
	client, ids := fakePods(b, pods)
	execer := &counted{Execer: client}
	ctx := b.Context()
	for b.Loop() {
		began := cpu()
		var all sync.WaitGroup
		pace := time.NewTicker(period / (kinds * pods))
		for i := range kinds * pods {
			<-pace.C
			all.Go(func() {
				if _, _, err := client.ExecSync(ctx, ids[i%pods], []string{"true"}, time.Second, 100); err != nil {
					b.Error(err)
				}
			})
		}
		pace.Stop()
		all.Wait()
		bare := cpu() - began

		m := probes.New(ctx, probes.Options{Execer: execer})
		execer.n.Store(0)
		began = cpu()
		for i, id := range ids {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("uid-", i))}}
			var targets []pod.ProbeTarget
			for _, kind := range []pod.ProbeKind{pod.Liveness, pod.Readiness, pod.Startup} {
				one := target(id, kind, func(p *corev1.Probe) { p.Exec.Command = []string{"true"} })
				one.Inherited, one.Known = true, pod.Passed
				targets = append(targets, one)
			}
			m.Set(p, targets, ignore{})
		}
		for execer.n.Load() < kinds*pods {
			time.Sleep(20 * time.Millisecond)
		}
		managed := cpu() - began
		m.Stop()
		b.ReportMetric(float64(bare.Microseconds())/(kinds*pods), "bare-cpu-us/probe")
		b.ReportMetric(float64(managed.Microseconds())/float64(execer.n.Load()), "managed-cpu-us/probe")
		b.ReportMetric(managed.Seconds()/float64(execer.n.Load())/(bare.Seconds()/(kinds*pods)), "managed/bare")
	}
}

// fakePods starts pods on a runtime in memory, with one container each.
func fakePods(b *testing.B, n int) (client *runtime.Client, ids []string) {
	b.Helper()
	server := fakecri.New(fakecri.Options{PullAny: true})
	b.Cleanup(server.Close)
	socket := filepath.Join(b.TempDir(), "s")
	require.NoError(b, server.Listen(socket))
	client = runtime.New(runtime.Options{RuntimeEndpoint: socket, PodLogsDir: b.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-ended)
	})
	require.NoError(b, client.Connect(ctx))
	for i := range n {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid-", i))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}},
		}
		_, err := client.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p, SpecHash: pod.SpecHash(p)})
		require.NoError(b, err)
		o, err := client.Inspect(ctx, p.UID)
		require.NoError(b, err)
		image, err := client.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
		require.NoError(b, err)
		id, err := client.CreateContainer(ctx, runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: image.Ref})
		require.NoError(b, err)
		require.NoError(b, client.StartContainer(ctx, id))
		ids = append(ids, id)
	}
	return client, ids
}
