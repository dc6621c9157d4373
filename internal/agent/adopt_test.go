package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/internal/store"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// loseState removes what the agent keeps on disk.
func (s *stage) loseState() {
	s.Helper()
	require.NoError(s, os.RemoveAll(s.cfg.RootDirectory))
}

// TestRestart: RST-3 and INV-10. The next agent takes over what runs; nothing is
// stopped, started or counted.
func TestRestart(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := changed(newPod("a"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "app:1", Command: []string{"true"}}}
		})
		s.send("file", p)
		s.after(time.Minute)
		before, done := s.shown("a"), acts(s)
		for range 3 {
			s.restart()
			require.True(s, before.Status.StartTime.Equal(s.shown("a").Status.StartTime), "shown before anybody spoke")
			s.send("file", p)
			s.after(10 * time.Minute)
		}
		require.Equal(s, done, acts(s))
		after := s.shown("a")
		require.Equal(s, before.UID, after.UID)
		require.True(s, equality.Semantic.DeepEqual(before.Status, after.Status))
	})
}

func acts(s *stage) int {
	n := 0
	for _, rpc := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox", "PullImage"} {
		n += len(s.calls(rpc, ""))
	}
	return n
}

// TestLostState: DESIGN section 5. A lost state file costs history, never a pod.
func TestLostState(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"))
		uid, before := s.uid("a"), acts(s)
		s.stop()
		s.loseState()
		s.after(time.Hour)
		s.start()
		s.send("file", newPod("a"), newPod("b"), newPod("c"))
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		require.Equal(s, 3, acts(s)-before, "c alone was made")
		require.EqualValues(s, 0, s.shown("a").Status.ContainerStatuses[0].RestartCount)
		require.Equal(s, 1, s.reasons("a")["Adopted"])
		require.Empty(s, s.reasons("c")["Adopted"])
		require.Less(s, time.Since(s.shown("c").Status.StartTime.Time), 5*time.Minute)
		require.Greater(s, time.Since(s.shown("a").Status.StartTime.Time), time.Hour, "it began when its sandbox did")
	})
}

// TestLostStateAndChange: one that runs by another spec ends first, with its own
// grace, known from its labels (TRM-13); images may differ and are swapped.
func TestLostStateAndChange(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		deaf := changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"} })
		s.send("file", deaf, newPod("b"))
		a, b := s.uid("a"), s.uid("b")
		s.stop()
		s.loseState()
		s.start()
		s.send("file",
			changed(deaf, func(p *corev1.Pod) {
				p.Spec.HostNetwork = true
				p.Spec.TerminationGracePeriodSeconds = new(int64(1))
			}),
			changed(newPod("b"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" }))
		s.after(15 * time.Second)
		require.Equal(s, a, s.uid("a"))
		s.after(15 * time.Second)
		require.NotEqual(s, a, s.uid("a"))
		require.Equal(s, []int64{20}, s.graces("a"))
		require.False(s, s.calls("RunPodSandbox", "a")[1].Began.Before(s.calls("RemovePodSandbox", "a")[0].Ended), "INV-4")
		require.Equal(s, b, s.uid("b"))
		require.Len(s, s.calls("RunPodSandbox", "b"), 1)
		require.EqualValues(s, 1, s.shown("b").Status.ContainerStatuses[0].RestartCount)
		require.Equal(s, []string{"a main", "b main"}, s.running())
	})
}

// TestChangeSurvivesTheAgent: an agent that goes right after it decided to
// replace an adopted pod leaves no doubt for the next.
func TestChangeSurvivesTheAgent(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		deaf := changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"} })
		s.send("file", deaf)
		s.stop()
		s.loseState()
		s.start()
		next := changed(deaf, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
		s.wires["file"] <- source.Set{Source: "file", Pods: []*corev1.Pod{from("file", next)}}
		s.restart()
		s.send("file", next)
		s.after(time.Minute)
		require.True(s, s.shown("a").Spec.HostNetwork)
		require.Equal(s, []string{"a main"}, s.running())
	})
}

// TestStrays: what nobody wants ends with its own grace, when all have spoken.
func TestStrays(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		deaf := changed(newPod("a"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"}
			p.Spec.TerminationGracePeriodSeconds = new(int64(40))
		})
		s.send("http")
		s.send("file", deaf, newPod("b"))
		s.stop()
		s.loseState()
		s.start()
		s.send("file", newPod("b"))
		s.after(time.Hour)
		require.Equal(s, []string{"a main", "b main"}, s.running(), "http has not spoken")
		s.send("http")
		s.after(39 * time.Second)
		require.Equal(s, []string{"a main", "b main"}, s.running())
		require.NotNil(s, s.shown("a").DeletionTimestamp)
		s.after(5 * time.Second)
		require.Equal(s, []string{"b main"}, s.running())
		require.Equal(s, []int64{40}, s.graces("a"))
		require.Len(s, s.cri.Snapshot().Sandboxes, 1)
		require.Len(s, s.a.Pods().Items, 1)
	})
}

// TestStrayOfUnknownOrigin: INV-25, also when the record is lost: where it came
// from is on its sandbox.
func TestStrayOfUnknownOrigin(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"))
		s.stop()
		s.loseState()
		s.start()
		s.sendSet(source.Set{Source: "file", Unknown: []string{"/file/a"}})
		s.after(time.Hour)
		require.Equal(s, []string{"a main"}, s.running())
		s.send("file")
		s.after(time.Minute)
		require.Empty(s, s.running())
	})
}

// TestForeignSandboxes are never touched, whatever they look like.
func TestForeignSandboxes(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		conn, err := s.cri.Dial()
		require.NoError(s, err)
		defer func() { require.NoError(s, conn.Close()) }()
		rt := runtimeapi.NewRuntimeServiceClient(conn)
		for _, labels := range []map[string]string{nil, {
			"io.kubernetes.pod.name": "a", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "kubelets",
		}} {
			_, err := rt.RunPodSandbox(s.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "shop", Uid: string(rune('x' + len(labels)))}, Labels: labels,
			}})
			require.NoError(s, err)
		}
		s.restart()
		s.send("file", newPod("a"))
		s.send("file")
		s.after(time.Hour)
		snap := s.cri.Snapshot()
		require.Len(s, snap.Sandboxes, 2)
		for _, b := range snap.Sandboxes {
			require.True(s, b.Ready)
		}
		require.Len(s, s.calls("StopPodSandbox", ""), 1)
	})
}

// TestTwoInstancesOnRecord: the one that was on its way out is not taken for the
// one that is wanted.
func TestTwoInstancesOnRecord(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"))
		uid := s.uid("a")
		s.stop()
		db, err := store.Open(filepath.Join(s.cfg.RootDirectory, stateFile))
		require.NoError(s, err)
		old := from("file", newPod("a"))
		for _, other := range []types.UID{"0", "z"} {
			p := old.DeepCopy()
			p.UID, p.CreationTimestamp = other, metav1.Now()
			require.NoError(s, db.Put(pod.Instance{User: old, Pod: p, Record: pod.Record{Stop: &pod.Stop{Delete: true, GraceSeconds: 5}}}))
		}
		require.NoError(s, db.Close())
		s.start()
		s.send("file", newPod("a"))
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, []string{"a main"}, s.running())
		require.Empty(s, s.graces("a"))
		instances, err := s.a.store.All()
		require.NoError(s, err)
		require.Len(s, instances, 1)
	})
}

// TestInventoryWithAHungPod: INV-23. A pod that cannot be inspected keeps nobody
// from starting, and is not taken for dead.
func TestInventoryWithAHungPod(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("stuck"), newPod("fine"))
		stuck := string(s.uid("stuck"))
		s.stop()
		s.loseState()
		remove := s.cri.Inject(fakecri.Fault{RPC: "ContainerStatus", UID: stuck, Mode: fakecri.HangBefore, Times: -1})
		s.start()
		s.send("file", newPod("stuck"), newPod("fine"), newPod("new"))
		require.Equal(s, "RuntimeNotReady", s.shown("new").Status.Reason)
		s.after(20 * time.Second)
		require.Equal(s, []string{"fine main", "new main", "stuck main"}, s.running())
		s.after(2 * time.Minute)
		require.ErrorContains(s, s.a.checkPods(), "the inspection of pod "+stuck+" has been running for")
		remove()
		s.after(5 * time.Minute)
		require.NoError(s, s.a.checkPods())
		require.Len(s, s.calls("RunPodSandbox", "stuck"), 1)
		require.Equal(s, corev1.PodRunning, s.shown("stuck").Status.Phase)
	})
}
