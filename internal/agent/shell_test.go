package agent

import (
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/runtime/fakecri"
)

func TestMain(m *testing.M) {
	if !slices.ContainsFunc(os.Args, func(a string) bool { return a == "-test.v=true" }) {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	os.Exit(m.Run())
}

func key(s *stage, name, container string) fakecri.ContainerKey {
	s.Helper()
	return fakecri.ContainerKey{UID: string(s.uid(name)), Name: container}
}

// TestCrashLoop: BO and Q-27 through every layer: exact delays, and nothing is
// asked of the runtime in between.
func TestCrashLoop(t *testing.T) {
	for _, flavor := range []fakecri.Flavor{fakecri.Containerd24, fakecri.Containerd16} {
		onStage(t, fakecri.Options{Flavor: flavor}, file, func(s *stage) {
			s.send("file", changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 1; exit 3"} }))
			s.after(20 * time.Minute)
			starts := s.calls("StartContainer", "a")
			var waits []int
			for i := range starts[1:7] {
				waits = append(waits, int((starts[i+1].Began.Sub(starts[i].Began) - time.Second).Round(time.Second).Seconds()))
			}
			// Without events an end is noticed by the relist, and the delay counts
			// from the end all the same.
			require.InDelta(s, 0, waits[0], 1)
			require.Equal(s, []int{10, 20, 40, 80, 160}, waits[1:], string(flavor))
			require.Equal(s, "CrashLoopBackOff", s.shown("a").Status.ContainerStatuses[0].State.Waiting.Reason)
			require.EqualValues(s, len(starts)-1, s.shown("a").Status.ContainerStatuses[0].RestartCount)
			require.Equal(s, len(starts), s.reasons("a")["Started"])
			require.Equal(s, 1, s.cri.MaxRunning(key(s, "a", "main")))
		})
	}
}

// TestRestartAtOnce: the first restart after an exit does not wait for a relist
// where there are events.
func TestRestartAtOnce(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"))
		s.after(30 * time.Second)
		require.NoError(s, s.cri.ExitNamed(key(s, "a", "main"), 1, ""))
		s.after(100 * time.Millisecond)
		require.Equal(s, []string{"a main"}, s.running())
	})
}

// TestLostEvents: INV-22. Lost events delay and prevent nothing.
func TestLostEvents(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.cri.Inject(fakecri.Fault{RPC: "Event", Times: -1})
		s.send("file", newPod("a"))
		require.Equal(s, []string{"a main"}, s.running(), "the worker looks for itself")
		require.NoError(s, s.cri.ExitNamed(key(s, "a", "main"), 1, ""))
		s.after(time.Minute + time.Second)
		require.Equal(s, []string{"a main"}, s.running())
	})
}

// TestStopDuringPull: PW-7. A pull that nobody wants any more is given up.
func TestStopDuringPull(t *testing.T) {
	onStage(t, fakecri.Options{Latency: map[string]time.Duration{"PullImage": time.Hour}}, file, func(s *stage) {
		s.send("file", newPod("a"))
		require.Len(s, s.calls("PullImage", ""), 1)
		s.send("file")
		s.after(time.Second)
		require.Equal(s, codes.Canceled, status.Code(s.calls("PullImage", "")[0].Err))
		require.Empty(s, s.a.Pods().Items)
		require.Empty(s, s.cri.Snapshot().Sandboxes)
	})
}

// TestBadImage: the pod that runs is not hurt by an image that does not come
// and says why.
func TestBadImage(t *testing.T) {
	onStage(t, fakecri.Options{Images: []fakecri.Image{{Ref: "app:2", PullError: status.Error(codes.NotFound, "no such tag")}}}, file, func(s *stage) {
		s.send("file", newPod("a"))
		s.send("file", changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" }))
		s.after(time.Hour)
		require.Empty(s, s.graces("a"))
		require.Equal(s, []string{"a main"}, s.running())
		require.Positive(s, s.reasons("a")["Failed"])
		pulls := 0
		for _, c := range s.calls("PullImage", "") {
			if c.Image == "app:2" {
				pulls++
			}
		}
		require.InDelta(s, 16, pulls, 2, "C-14")
	})
}

// TestFaultsAtEveryCall: each call that makes a pod or ends one fails once in
// each way. The pod comes and goes all the same, and nothing runs twice.
func TestFaultsAtEveryCall(t *testing.T) {
	modes := []fakecri.Mode{fakecri.FailBefore, fakecri.FailAfter, fakecri.HangBefore, fakecri.HangAfter, fakecri.Late}
	for _, rpc := range []string{
		"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox",
		"PullImage", "ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus", "ImageStatus",
	} {
		for _, mode := range modes {
			if rpc == "PullImage" && mode != fakecri.FailBefore && mode != fakecri.FailAfter {
				continue // a pull has no limit (C-21)
			}
			t.Run(rpc+" "+mode.String(), func(t *testing.T) {
				t.Parallel()
				onStage(t, fakecri.Options{}, file, func(s *stage) {
					s.cri.Inject(fakecri.Fault{RPC: rpc, Mode: mode, Delay: time.Second})
					s.send("file", newPod("a"), job("b"))
					s.after(10 * time.Minute)
					require.Equal(s, []string{"a main"}, s.running())
					require.Equal(s, corev1.PodSucceeded, s.shown("b").Status.Phase)
					main, once := key(s, "a", "main"), key(s, "b", "once")
					require.Equal(s, 1, s.cri.TotalStarts(once), "INV-7")
					s.send("file")
					s.after(10 * time.Minute)
					require.Empty(s, s.a.Pods().Items)
					require.Empty(s, s.cri.Snapshot().String())
					require.Equal(s, 1, s.cri.MaxRunning(main), "INV-1")
					require.Equal(s, 1, s.cri.TotalStarts(main))
				})
			})
		}
	}
}

// job is a pod that does something once.
func job(name string) *corev1.Pod {
	return changed(newPod(name), func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0] = corev1.Container{Name: "once", Image: "app:1", Command: []string{"sh", "-c", "sleep 2"}}
	})
}
