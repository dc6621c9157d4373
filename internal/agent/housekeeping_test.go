package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/store"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestHousekeeping: 3c "housekeeping", each scenario in the words of this agent.
func TestHousekeeping(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(s *stage)
	}{
		{"a pod that left the set ends with its own grace, not a short one (Q-32)", func(s *stage) {
			s.send("file", newPod("a"))
			s.send("file")
			s.after(time.Minute)
			require.Equal(s, []int64{20}, s.graces("a"))
			require.Empty(s, s.a.Pods().Items)
		}},
		{"one that ends already is told nothing new (known terminating)", func(s *stage) {
			s.send("file", deaf("a"))
			for range 5 {
				s.send("file")
			}
			s.after(time.Minute)
			require.Equal(s, []int64{20}, s.graces("a"))
			require.Equal(s, 1, s.reasons("a")["Killing"])
		}},
		{"one whose stops fail ends by stronger means (errored terminating)", func(s *stage) {
			s.send("file", newPod("a"))
			s.cri.Inject(fakecri.Fault{RPC: "StopContainer", Times: 40})
			s.send("file")
			s.after(10 * time.Minute)
			require.Empty(s, s.running())
			require.Empty(s, s.a.Pods().Items)
		}},
		{"a pod that could not start is dropped (could not start, no runtime)", func(s *stage) {
			s.cri.Inject(fakecri.Fault{RPC: "RunPodSandbox", Times: -1})
			s.send("file", newPod("a"))
			s.after(time.Minute)
			s.send("file")
			s.after(time.Minute)
			require.Empty(s, s.a.Pods().Items)
			instances, err := s.a.store.All()
			require.NoError(s, err)
			require.Empty(s, instances)
		}},
		{"one whose image never came is dropped with its sandbox (could not start, with runtime)", func(s *stage) {
			s.cri.Inject(fakecri.Fault{RPC: "PullImage", Times: -1})
			s.send("file", newPod("a"))
			s.after(time.Minute)
			require.Len(s, s.cri.Snapshot().Sandboxes, 1)
			s.send("file")
			s.after(time.Minute)
			require.Empty(s, s.cri.Snapshot().Sandboxes)
		}},
		{"the same UID comes again while the first ends: it starts after it (PW-13)", func(s *stage) {
			p := changed(deaf("a"), func(p *corev1.Pod) { p.UID = "fixed" })
			s.send("file", p)
			s.send("file")
			s.send("file", p)
			s.after(10 * time.Second)
			require.Len(s, s.calls("RunPodSandbox", "a"), 1)
			s.after(15 * time.Second)
			require.Equal(s, []string{"a main"}, s.running())
			require.EqualValues(s, "fixed", s.uid("a"))
			require.False(s, s.calls("RunPodSandbox", "a")[1].Began.Before(s.calls("RemovePodSandbox", "a")[0].Ended))
		}},
		{"and in the pass in which the first was finished (terminated one restarted)", func(s *stage) {
			s.send("file", deaf("a"))
			s.send("file")
			s.after(5 * time.Second)
			s.send("file", newPod("a"))
			s.after(20 * time.Second)
			ended, began := s.calls("RemovePodSandbox", "a")[0].Ended, s.calls("RunPodSandbox", "a")[1].Began
			require.Less(s, began.Sub(ended), time.Second)
		}},
		{"a pod that vanished from the runtime is made again (vanished, wanted)", func(s *stage) {
			s.send("file", newPod("a"))
			uid := s.uid("a")
			s.cri.Wipe()
			s.after(2 * time.Minute)
			require.Equal(s, []string{"a main"}, s.running())
			require.Equal(s, uid, s.uid("a"))
			require.EqualValues(s, 1, s.shown("a").Status.ContainerStatuses[0].RestartCount, "INV-11")
		}},
		{"one that vanished and is unwanted is forgotten (vanished, unwanted)", func(s *stage) {
			s.send("file", newPod("a"))
			s.cri.Wipe()
			s.send("file")
			s.after(time.Minute)
			require.Empty(s, s.a.Pods().Items)
		}},
		{"a finished pod is left as it is, and goes when it is unwanted (terminal)", func(s *stage) {
			p := changed(newPod("a"), func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
				p.Spec.Containers[0].Command = []string{"true"}
			})
			s.send("file", p)
			s.after(time.Hour)
			s.restart()
			s.send("file", p)
			s.after(time.Hour)
			require.Equal(s, corev1.PodSucceeded, s.shown("a").Status.Phase)
			require.Len(s, s.calls("StartContainer", "a"), 1)
			s.send("file")
			s.after(time.Minute)
			require.Empty(s, s.a.Pods().Items)
		}},
		{"a termination goes on under the next agent with what is left of its grace", func(s *stage) {
			s.send("file", deaf("a"))
			s.send("file")
			s.after(3 * time.Second)
			s.restart() // it leaves after at most ten seconds
			s.after(30 * time.Second)
			require.Empty(s, s.running())
			require.Equal(s, 2, len(s.graces("a")))
			require.LessOrEqual(s, s.graces("a")[1], int64(17))
		}},
		{"directories of pods that nobody knows are removed, those of others stay", func(s *stage) {
			s.send("file", newPod("a"))
			s.settle()
			kept, left := s.a.volumes.PodDir(s.uid("a")), s.a.volumes.PodDir("of-nobody")
			require.NoError(s, os.MkdirAll(filepath.Join(left, "volumes"), 0o700))
			s.after(15 * time.Second)
			require.NoDirExists(s, left)
			require.DirExists(s, kept)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { onStage(t, fakecri.Options{}, file, c.test) })
	}
}

// deaf is newPod, and it does not listen to TERM.
func deaf(name string) *corev1.Pod {
	return changed(newPod(name), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 100000"} })
}

// TestHousekeepingWaits: SL-13. Before all sources have spoken nothing is
// cleaned up either.
func TestHousekeepingWaits(t *testing.T) {
	onStage(t, fakecri.Options{}, both, func(s *stage) {
		left := s.a.volumes.PodDir("of-somebody")
		require.NoError(s, os.MkdirAll(left, 0o700))
		s.send("file")
		s.after(time.Hour)
		require.DirExists(s, left)
		s.send("http")
		s.after(15 * time.Second)
		require.NoDirExists(s, left)
	})
}

// TestWithoutRuntime: the agent starts, says what it waits for, and begins when
// the runtime comes.
func TestWithoutRuntime(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.stop()
		s.cri.Crash()
		s.start()
		s.send("file", newPod("a"))
		p := s.shown("a")
		require.Equal(s, corev1.PodPending, p.Status.Phase)
		require.Equal(s, "RuntimeNotReady", p.Status.Reason)
		s.after(10 * time.Minute)
		failed := map[string]string{}
		for _, c := range s.a.Checks(context.Background()) {
			if c.Err != nil {
				failed[c.Name] = c.Err.Error()
			}
		}
		require.Contains(s, failed["runtime"], "waiting for the container runtime at memory: ")
		require.Contains(s, failed["network"], "unknown while the runtime does not answer")
		require.Contains(s, failed["pleg"], "pleg has not listed the pods yet")
		require.Len(s, failed, 3)
		require.NotEmpty(s, s.a.Status(context.Background()).Runtime.Problem)
		require.NoError(s, s.a.Live())
		require.NoError(s, s.cri.Resume())
		s.after(15 * time.Second)
		require.Equal(s, []string{"a main"}, s.running())
		for _, c := range s.a.Checks(context.Background()) {
			require.NoError(s, c.Err, c.Name)
		}
		require.Empty(s, s.a.Status(context.Background()).Runtime.Problem)
	})
}

// TestRuntimeRestarts: what ran is kept, what ended meanwhile is noticed soon
// after.
func TestRuntimeRestarts(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("a"), newPod("b"))
		s.after(time.Minute)
		before := acts(s)
		s.cri.Crash()
		s.after(10 * time.Minute)
		require.Equal(s, corev1.PodRunning, s.shown("a").Status.Phase, "no news is no death")
		require.NoError(s, s.cri.Resume())
		s.after(time.Minute)
		require.Equal(s, before, acts(s))

		s.cri.Crash()
		require.NoError(s, s.cri.ExitNamed(fakecri.ContainerKey{UID: string(s.uid("a")), Name: "main"}, 3, ""))
		s.after(time.Minute)
		require.NoError(s, s.cri.Resume())
		s.after(15 * time.Second)
		require.Equal(s, []string{"a main", "b main"}, s.running())
		require.EqualValues(s, 3, s.shown("a").Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	})
}

// TestReboot: RST-6. Every pod gets another sandbox, once, and its init
// containers run again.
func TestReboot(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := changed(newPod("a"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "app:1", Command: []string{"true"}}}
		})
		s.send("file", p)
		uid := s.uid("a")
		s.stop()
		s.cri.Reboot()
		require.NoError(s, s.cri.Resume())
		s.start()
		s.send("file", p)
		s.after(time.Minute)
		require.Equal(s, uid, s.uid("a"))
		require.Equal(s, []string{"a main"}, s.running())
		require.Len(s, s.calls("RunPodSandbox", "a"), 2)
		require.Equal(s, 2, s.cri.TotalStarts(fakecri.ContainerKey{UID: string(uid), Name: "first"}))
		require.EqualValues(s, 1, s.shown("a").Status.ContainerStatuses[0].RestartCount)
	})
}

// TestNewRefuses: what is in the root directory and cannot be used stays as it
// is, and the error says what it is.
func TestNewRefuses(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		_, err := New(s.cfg, "v0")
		held := &store.LockedError{}
		require.ErrorAs(s, err, &held)
		require.Equal(s, os.Getpid(), held.PID)

		s.send("file", newPod("a"))
		s.stop()
		path := filepath.Join(s.cfg.RootDirectory, stateFile)
		setFormat(s, path, "99")
		_, err = New(s.cfg, "v0")
		newer := &store.NewerFormatError{}
		require.ErrorAs(s, err, &newer)
		require.Equal(s, 99, newer.Format)
		require.Equal(s, []string{"a main"}, s.running(), "the pods are left alone")

		setFormat(s, path, "1")
		s.start()
		s.send("file", newPod("a"))
		require.Len(s, s.calls("StartContainer", "a"), 1)

		// A damaged file is set aside, told, and the pods are adopted.
		s.stop()
		require.NoError(s, os.Truncate(path, 4096))
		s.start()
		s.send("file", newPod("a"))
		s.after(time.Minute)
		require.Len(s, s.calls("StartContainer", "a"), 1)
		require.Equal(s, 1, s.reasons("a")["Adopted"])
		require.NotNil(s, s.a.salvage)
		require.FileExists(s, s.a.salvage.MovedTo)
	})
}

func setFormat(s *stage, path, format string) {
	s.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(s, err)
	require.NoError(s, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(format)) }))
	require.NoError(s, db.Close())
}
