package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// reloadWith tells the agent a changed configuration.
func (s *stage) reloadWith(change func(c *config.Configuration)) {
	change(&s.cfg)
	s.a.Reload(config.Loaded{Config: s.cfg}, nil)
	s.settle()
}

func maxPods(n int32) func(*config.Configuration) {
	return func(c *config.Configuration) { c.MaxPods = n }
}

// TestMaxPods: a pod beyond the limit waits, which is told once, and starts when
// one has ended; the order is that of the names.
func TestMaxPods(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(maxPods(2))
		s.send("file", newPod("d"), newPod("c"), newPod("b"), newPod("a"))
		require.Equal(s, []string{"a main", "b main"}, s.running())
		held := s.shown("c").Status
		require.Equal(s, corev1.PodPending, held.Phase)
		require.Equal(s, "OutOfpods", held.Reason)
		require.Equal(s, "cannot start Pod shop/c: maxPods is 2, and as many are there; it starts when one of them has ended", held.Message)
		s.after(time.Minute)
		require.Equal(s, 1, s.reasons("c")["OutOfpods"])
		require.Equal(s, 1, s.reasons("d")["OutOfpods"])

		s.send("file", newPod("d"), newPod("c"), newPod("b"))
		s.after(3 * time.Second)
		require.Equal(s, []string{"b main", "c main"}, s.running())
		require.Equal(s, corev1.PodRunning, s.shown("c").Status.Phase)
		s.send("file", newPod("c"), newPod("b")) // d is not wanted any more
		require.Len(s, s.a.Pods().Items, 2)
		s.send("file", newPod("b"))
		s.after(3 * time.Second)
		require.Equal(s, []string{"b main"}, s.running())
	})
}

// TestMaxPodsReplace: an instance that takes another's place is no newcomer.
func TestMaxPodsReplace(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(maxPods(1))
		b := newPod("b")
		s.send("file", b)
		s.send("file", newPod("a"), changed(b, func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }))
		s.after(10 * time.Second)
		require.Equal(s, []string{"b main"}, s.running())
		require.NotEmpty(s, s.shown("b").Spec.Containers[0].Env)
		require.Equal(s, "OutOfpods", s.shown("a").Status.Reason)
	})
}

// TestMaxPodsChanged: more room is used at once; less ends nothing, not even
// across a restart of the agent.
func TestMaxPodsChanged(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		pods := []*corev1.Pod{newPod("a"), newPod("b"), newPod("c")}
		s.reloadWith(maxPods(1))
		s.send("file", pods...)
		require.Equal(s, []string{"a main"}, s.running())
		s.reloadWith(maxPods(3))
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		s.reloadWith(maxPods(1))
		s.after(time.Minute)
		require.Len(s, s.running(), 3)
		s.restart()
		s.send("file", append(pods, newPod("d"))...)
		s.after(time.Minute)
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		require.Empty(s, s.graces(""))
		require.Equal(s, "OutOfpods", s.shown("d").Status.Reason)
	})
}

// TestMaxPodsFinished: a pod that ran to its end takes no room.
func TestMaxPodsFinished(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(maxPods(1))
		job := newPod("a")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		job.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 20"}
		s.send("file", job, newPod("b"))
		require.Equal(s, []string{"a main"}, s.running())
		s.after(time.Minute)
		require.Equal(s, corev1.PodSucceeded, s.shown("a").Status.Phase)
		require.Equal(s, []string{"b main"}, s.running())
	})
}
