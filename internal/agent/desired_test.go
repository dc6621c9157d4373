package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/runtime/fakecri"
)

var (
	file = []string{source.FileName}
	both = []string{source.FileName, source.HTTPName}
)

// TestFromSetToGone: a pod comes and goes with the set of its source.
func TestFromSetToGone(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"))
		require.Equal(s, []string{"a main", "b main"}, s.running())
		require.Equal(s, corev1.PodRunning, s.shown("a").Status.Phase)
		require.Equal(s, "edge", s.shown("a").Spec.NodeName)
		s.send("file", newPod("b"))
		s.after(3 * time.Second)
		require.Equal(s, []string{"b main"}, s.running())
		require.Len(s, s.a.Pods().Items, 1)
		require.Equal(s, []int64{20}, s.graces("a"))
		instances, err := s.a.store.All()
		require.NoError(s, err)
		require.Len(s, instances, 1)
		require.Len(s, s.cri.Snapshot().Sandboxes, 1)
	})
}

// TestIdleAgent: with a stream, nothing is asked of the runtime but the slow
// listings.
func TestIdleAgent(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"), newPod("c"))
		s.after(time.Minute)
		before := len(s.cri.Calls())
		s.after(time.Hour)
		lists := 0
		for _, c := range s.cri.Calls()[before:] {
			require.Contains(s, []string{"ListContainers", "ListPodSandbox", "ListImages", "ImageFsInfo"}, c.RPC)
			lists++
		}
		require.LessOrEqual(s, lists, 2*(60+60)+10, "the relist and the collector")
	})
}

// TestReplace: INV-4. The old instance ends first, with its own grace; the new
// one has another UID and begins when nothing is left of the old one.
func TestReplace(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := newPod("a")
		p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"} // it does not listen
		s.send("file", p)
		old := s.uid("a")
		s.send("file", changed(p, func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
			p.Spec.TerminationGracePeriodSeconds = new(int64(3))
		}))
		s.after(19 * time.Second)
		require.Equal(s, old, s.uid("a"))
		require.InDelta(s, 0, time.Until(s.shown("a").DeletionTimestamp.Time).Seconds(), 2, "it is about to be killed")
		require.EqualValues(s, 20, *s.shown("a").DeletionGracePeriodSeconds)
		s.after(5 * time.Second)
		require.NotEqual(s, old, s.uid("a"))
		require.Equal(s, []string{"a main"}, s.running())
		require.Equal(s, []int64{20}, s.graces("a"))
		ended, began := s.calls("RemovePodSandbox", "a")[0].Ended, s.calls("RunPodSandbox", "a")[1].Began
		require.False(s, began.Before(ended))
		require.Equal(s, 1, s.reasons("a")["Replacing"])
	})
}

// TestReplaceTwice: what is wanted in the end is what counts, also when the old
// one is wanted back.
func TestReplaceTwice(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := newPod("a")
		p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"}
		s.send("file", p)
		for _, value := range []string{"1", "2", "3"} {
			s.send("file", changed(p, func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: value}} }))
		}
		s.send("file") // nobody wants it
		s.send("file", p)
		s.after(time.Minute)
		require.Equal(s, []string{"a main"}, s.running())
		require.Len(s, s.calls("RunPodSandbox", "a"), 2)
		require.Empty(s, s.shown("a").Spec.Containers[0].Env)
	})
}

// TestInPlace: DESIGN section 6. Metadata and images change the running pod.
func TestInPlace(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := newPod("a")
		s.send("file", p)
		uid := s.uid("a")
		s.send("file", changed(p, func(p *corev1.Pod) { p.Labels = map[string]string{"color": "blue"} }))
		require.Equal(s, map[string]string{"color": "blue"}, s.shown("a").Labels)
		require.Empty(s, s.graces("a"))
		s.send("file", changed(p, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" }))
		s.after(3 * time.Second)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, []int64{20}, s.graces("a"))
		require.Len(s, s.calls("RunPodSandbox", "a"), 1)
		require.Equal(s, "app:2", s.shown("a").Spec.Containers[0].Image)
		require.EqualValues(s, 1, s.shown("a").Status.ContainerStatuses[0].RestartCount)
		require.Equal(s, 1, s.reasons("a")["InPlaceUpdate"])

		// What was changed in place holds for the next agent.
		s.restart()
		s.send("file", changed(p, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" }))
		s.after(time.Minute)
		require.Len(s, s.graces("a"), 1)
	})
}

// TestColdStart: INV-6. Nothing ends before every source has spoken, and then
// what nobody wants does.
func TestColdStart(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"))
		s.send("http", newPod("c"))
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		s.restart()
		s.after(time.Hour) // nobody speaks
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		require.ErrorContains(s, s.a.checkSources(), "source file (/file) has not delivered yet; source http (/http) has not delivered yet")
		s.send("file", newPod("b"))
		s.after(time.Hour) // the other is not reachable
		require.Equal(s, []string{"a main", "b main", "c main"}, s.running())
		require.EqualError(s, s.a.checkSources(), "source http (/http) has not delivered yet")
		s.send("http")
		s.after(3 * time.Second)
		require.Equal(s, []string{"b main"}, s.running())
		require.NoError(s, s.a.checkSources())
	})
}

// TestUnreachableSource: pods of a source that does not answer are looked after
// as ever, by what is on record.
func TestUnreachableSource(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("file")
		s.send("http", newPod("a"))
		s.restart()
		s.send("file", newPod("new"))
		require.Equal(s, []string{"a main", "new main"}, s.running())
		require.NoError(s, s.cri.ExitNamed(fakecri.ContainerKey{UID: string(s.uid("a")), Name: "main"}, 1, ""))
		s.after(3 * time.Second)
		require.Equal(s, []string{"a main", "new main"}, s.running())
		require.EqualValues(s, 1, s.shown("a").Status.ContainerStatuses[0].RestartCount)
	})
}

// TestSameNameInTwoSources: the first to have it keeps it, the other is refused
// by name, once; when the first lets go, the other's pod takes over in place.
func TestSameNameInTwoSources(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("file", newPod("a"))
		uid := s.uid("a")
		second := changed(newPod("a"), func(p *corev1.Pod) { p.Labels = map[string]string{"from": "afar"} })
		for range 5 {
			s.send("http", second)
		}
		require.Equal(s, []string{"a main"}, s.running())
		require.Empty(s, s.shown("a").Labels)
		require.Contains(s, s.events("a"), "Duplicate cannot use Pod shop/a of /http/a: /file/a already holds one of this name")
		require.Equal(s, 1, s.reasons("a")["Duplicate"])
		s.send("http")
		s.send("http", second) // again
		require.Equal(s, 2, s.reasons("a")["Duplicate"])
		s.send("file")
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, map[string]string{"from": "afar"}, s.shown("a").Labels)
		require.Empty(s, s.graces("a"))
		s.send("http")
		s.after(time.Minute)
		require.Empty(s, s.running())
	})
}

// TestMoveBetweenSources: a pod that leaves one source and comes in another at
// about the same time runs on if the new one speaks first; else it ends and
// comes again.
func TestMoveBetweenSources(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("http")
		s.send("file", newPod("a"))
		uid := s.uid("a")
		s.send("http", newPod("a"))
		s.send("file")
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Empty(s, s.graces("a"))
		require.Equal(s, "/http/a", pod.Origin(s.shown("a")))

		// Across a restart of the agent too, whoever speaks first.
		s.restart()
		s.send("file", newPod("a"))
		s.after(time.Minute)
		require.Equal(s, "/http/a", pod.Origin(s.shown("a")), "its holder has not spoken")
		s.send("http")
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, "/file/a", pod.Origin(s.shown("a")))
		require.Empty(s, s.graces("a"))
	})
}

// TestUnknownOrigin: INV-25. What may belong to a file that cannot be read as a
// whole is neither ended nor taken over by another source.
func TestUnknownOrigin(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("http")
		s.send("file", newPod("a"), newPod("b"))
		s.sendSet(source.Set{Source: "file", Unknown: []string{"/file/a"}, Problems: []source.Problem{{Origin: "/file/a", Reason: "Unreadable", Message: "cannot read /file/a"}}})
		s.after(time.Minute)
		require.Equal(s, []string{"a main"}, s.running())
		require.Contains(s, s.events("edge"), "Unreadable cannot read /file/a")

		s.send("http", changed(newPod("a"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
		s.after(time.Minute)
		require.Empty(s, s.graces("a"), "another source does not take it over meanwhile")
		require.Equal(s, 1, s.reasons("a")["Duplicate"])

		s.send("file", newPod("a"))
		s.after(time.Minute)
		require.Equal(s, []string{"a main"}, s.running())
		require.Empty(s, s.graces("a"))
		s.send("http")
		s.send("file")
		s.after(time.Minute)
		require.Empty(s, s.running())
	})
}

// TestProblems are told once while they last, and again when they come again.
func TestProblems(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		bad := source.Problem{Origin: "/file/x", Kind: "Pod", Object: pod.Key{Namespace: "shop", Name: "x"}, Message: "spec.containers: Required value"}
		for range 3 {
			s.sendSet(source.Set{Source: "file", Problems: []source.Problem{bad}})
		}
		require.Equal(s, []string{"FailedValidation spec.containers: Required value"}, s.events("x"))
		require.Equal(s, 1, s.reasons("x")["FailedValidation"])
		s.send("file")
		s.sendSet(source.Set{Source: "file", Problems: []source.Problem{bad}})
		require.Equal(s, 2, s.reasons("x")["FailedValidation"])
	})
}

// TestUserUID: a UID that the author gives is used, but not for two.
func TestUserUID(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		a := changed(newPod("a"), func(p *corev1.Pod) { p.UID = "mine" })
		b := changed(newPod("b"), func(p *corev1.Pod) { p.UID = "mine" })
		s.send("file", a, b)
		require.EqualValues(s, "mine", s.uid("a"))
		require.NotEqual(s, s.uid("a"), s.uid("b"))
		require.Equal(s, []string{"a main", "b main"}, s.running())
	})
}

// TestFairness: Q-23. A flood on one channel does not keep the others waiting.
func TestFairness(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		s.send("file")
		floods := 0
		for i := range 300 {
			s.a.done.put("nobody")
			if i == 100 {
				go func() { s.wires["http"] <- source.Set{Source: "http", Pods: nil} }()
			}
			if s.a.known.Load().missing == "" {
				break
			}
			floods++
			time.Sleep(time.Nanosecond)
		}
		require.Less(s, floods, 110)
	})
}
