package podworkers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

func probed(name string) corev1.Container {
	c := container(name)
	c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = newProbe(5), newProbe(5), newProbe(5)
	return c
}

func ready(b *bench, p *corev1.Pod, name string) bool {
	b.Helper()
	for _, s := range b.paper.report(p.UID).Status.ContainerStatuses {
		if s.Name == name {
			return s.Ready
		}
	}
	b.Fatalf("no container %s", name)
	return false
}

// TestProbesOfALife: which probes run from the start of a container to the end
// of its pod (PRB-7, PRB-11, PRB-17, TRM-16).
func TestProbesOfALife(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p", probed("main"))
		box := b.start(p)
		b.settle()
		require.Equal(b, []string{"Startup main none"}, b.prober.take(p.UID))
		first := b.look(p.UID).Containers[0].ID
		box.PutVerdicts(pod.Verdicts{ContainerID: first, Startup: pod.Passed})
		b.settle()
		require.Equal(b, []string{"Liveness main none, Readiness main none"}, b.prober.take(p.UID))
		require.False(b, ready(b, p, "main"))
		box.PutVerdicts(pod.Verdicts{ContainerID: first, Readiness: pod.Passed})
		b.settle()
		require.True(b, ready(b, p, "main"))
		require.Empty(b, b.prober.take(p.UID), "they go on")

		box.PutVerdicts(pod.Verdicts{ContainerID: first, Liveness: pod.Failed})
		b.settle()
		require.Equal(b, []string{"Readiness main passed", "", "Startup main none"}, b.prober.take(p.UID),
			"while it is stopped, when it is gone, and for the next instance, of which nothing is known")
		second := b.look(p.UID).Containers[0].ID
		require.NotEqual(b, first, second)
		box.PutVerdicts(pod.Verdicts{ContainerID: first, Startup: pod.Passed, Readiness: pod.Passed})
		b.settle()
		require.False(b, ready(b, p, "main"), "INV-10: that was about the instance before")

		box.PutVerdicts(pod.Verdicts{ContainerID: second, Startup: pod.Passed, Readiness: pod.Passed})
		b.settle()
		b.prober.take(p.UID)
		b.stopTakes["main"] = 20 * time.Second
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()
		require.Equal(b, []string{"Readiness main passed"}, b.prober.take(p.UID), "TRM-16")
		box.PutVerdicts(pod.Verdicts{ContainerID: second, Readiness: pod.Failed})
		b.settle()
		require.False(b, ready(b, p, "main"), "told while the stop takes its time")
		time.Sleep(time.Minute)
		require.Equal(b, []string{""}, b.prober.take(p.UID))
	})
}

// TestVerdictDuringAWave: a stop that takes long does not hide what the probes
// of another container say.
func TestVerdictDuringAWave(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p", probed("main"), container("side"))
		box := b.start(p)
		b.settle()
		id := map[string]string{}
		for _, c := range b.look(p.UID).Containers {
			id[c.Name] = c.ID
		}
		b.stopTakes["side"] = 25 * time.Second
		swap := p.DeepCopy()
		swap.Spec.Containers[1].Image = "side:2"
		box.PutPod(swap)
		b.settle()
		require.Equal(b, []string{"side 30s"}, b.graces())
		b.prober.take(p.UID)
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Startup: pod.Passed})
		b.settle()
		require.Equal(b, []string{"Liveness main none, Readiness main none"}, b.prober.take(p.UID))
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Readiness: pod.Passed})
		b.settle()
		require.True(b, ready(b, p, "main"))
		require.Equal(b, pod.Passed, b.disk.record(p.UID).Containers["main"].Probed.Readiness, "on disk at once")
		time.Sleep(time.Minute)
	})
}

// TestVerdictsSurvive: INV-10. The next agent knows what the probes concluded:
// what is ready is told as ready from the first moment, what is not is not, and
// the startup probe is not run again.
func TestVerdictsSurvive(t *testing.T) {
	for _, readiness := range []pod.Verdict{pod.Passed, pod.Failed, pod.NoVerdict} {
		t.Run(readiness.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				p := newPod("p", probed("main"))
				box := b.start(p)
				b.settle()
				id := b.look(p.UID).Containers[0].ID
				box.PutVerdicts(pod.Verdicts{ContainerID: id, Startup: pod.Passed, Readiness: readiness})
				b.settle()
				b.leave()
				b.prober.take(p.UID)
				rec := b.disk.record(p.UID)
				b.restart()
				b.resume(p, rec)
				b.settle()
				require.Equal(b, []string{"Liveness main none inherited, Readiness main " + readiness.String() + " inherited"}, b.prober.take(p.UID))
				require.Equal(b, readiness == pod.Passed, ready(b, p, "main"))
				require.True(b, *b.paper.report(p.UID).Status.ContainerStatuses[0].Started)
			})
		})
	}
}

// TestToldOnceKept: INV-10. What the probes concluded is told when it is on disk,
// so that an agent that is killed at any moment is followed by one that shows the
// same; a disk that takes nothing holds up nothing.
func TestToldOnceKept(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("p", probed("main"), container("side"))
		box := b.start(p)
		b.settle()
		id := map[string]string{}
		for _, c := range b.look(p.UID).Containers {
			id[c.Name] = c.ID
		}
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Startup: pod.Passed})
		b.settle()
		b.disk.set(false, time.Second)
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Readiness: pod.Passed})
		b.settle()
		require.False(b, ready(b, p, "main"), "it is on its way to the disk")
		time.Sleep(time.Second)
		b.settle()
		require.True(b, ready(b, p, "main"))

		// Also while a wave is in flight, be its own record on its way or not.
		b.stopTakes["side"] = 25 * time.Second
		swap := p.DeepCopy()
		swap.Spec.Containers[1].Image = "side:2"
		box.PutPod(swap)
		time.Sleep(500 * time.Millisecond)
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Readiness: pod.Failed})
		time.Sleep(time.Second)
		require.True(b, ready(b, p, "main"))
		time.Sleep(2 * time.Second)
		b.settle()
		require.False(b, ready(b, p, "main"))
		require.Equal(b, pod.Failed, b.disk.record(p.UID).Containers["main"].Probed.Readiness)
		time.Sleep(time.Minute)
		require.Equal(b, pod.Failed, b.disk.record(p.UID).Containers["main"].Probed.Readiness, "no older record came later")

		b.disk.set(true, 0)
		box.PutVerdicts(pod.Verdicts{ContainerID: id["main"], Readiness: pod.Passed})
		b.settle()
		require.True(b, ready(b, p, "main"), "a full disk makes nobody look sick")
		b.disk.set(false, 0)
		time.Sleep(time.Minute)
	})
}
