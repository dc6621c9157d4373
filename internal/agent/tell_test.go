package agent

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestEventsOutlive: what happened before is told by the next agent, which goes
// on counting.
func TestEventsOutlive(t *testing.T) {
	onStage(t, fakecri.Options{}, []string{"file"}, func(s *stage) {
		s.send("file", newPod("web"))
		require.Equal(t, 1, s.reasons("web")["Started"])
		s.restart()
		s.send("file", newPod("web"))
		require.Equal(t, 1, s.reasons("web")["Started"], "it was adopted")
		require.Equal(t, 2, s.reasons("edge")["Starting"])
		require.Zero(t, s.reasons("edge")["Rebooted"])

		s.stop()
		s.a.facts.BootID = "the one before"
		require.NoError(t, os.Rename(filepath.Join(s.cfg.RootDirectory, stateFile), filepath.Join(s.cfg.RootDirectory, "kept")))
		s.start()
		require.Equal(t, 1, s.reasons("edge")["Starting"], "another state file has other events")
	})
}

// TestRebooted: that the machine was rebooted is told once.
func TestRebooted(t *testing.T) {
	onStage(t, fakecri.Options{}, []string{"file"}, func(s *stage) {
		require.NoError(t, s.a.store.PutMeta(metaBoot, []byte("the boot before")))
		s.restart()
		require.Equal(t, 1, s.reasons("edge")["Rebooted"])
		s.restart()
		require.Equal(t, 1, s.reasons("edge")["Rebooted"])
	})
}

// TestWaitsAreTold: a pod says what it waits for, once.
func TestWaitsAreTold(t *testing.T) {
	forever := func(ctx context.Context, p *fakecri.Process) int { <-ctx.Done(); return 0 }
	onStage(t, fakecri.Options{Programs: map[string]fakecri.Program{"prep": forever}}, []string{"file"}, func(s *stage) {
		p := newPod("web")
		p.Spec.InitContainers = []corev1.Container{{Name: "prep", Image: "app:1"}}
		s.send("file", p)
		s.after(5 * time.Minute)
		require.Equal(t, 1, s.reasons("web")["PodInitializing"])
		require.Contains(t, s.events("web"), "PodInitializing Waiting: init container prep has not finished yet")
	})
}

// TestNodeReadiness: that pods cannot be looked after is an event on the node,
// and so is that they can again.
func TestNodeReadiness(t *testing.T) {
	onStage(t, fakecri.Options{}, []string{"file"}, func(s *stage) {
		s.after(time.Minute)
		require.Equal(t, 1, s.reasons("edge")["NodeReady"])
		s.cri.Inject(fakecri.Fault{Times: -1})
		s.after(30 * time.Minute)
		require.Equal(t, 1, s.reasons("edge")["NodeNotReady"])
		s.cri.ClearFaults()
		s.after(10 * time.Minute)
		require.Equal(t, 2, s.reasons("edge")["NodeReady"])
		require.Equal(t, 1, s.reasons("edge")["NodeNotReady"])
	})
}

// TestWeekOfRestarts: a week of a crash loop and restarts of the agent, with a
// failing pull at its beginning, leaves log, state file, goroutines and memory as they were.
func TestWeekOfRestarts(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // thousands of records are synced
	crash := func(context.Context, *fakecri.Process) int { return 1 }
	onStage(t, fakecri.Options{Programs: map[string]fakecri.Program{"crash": crash}, JournalSize: 1000}, []string{"file"}, func(s *stage) {
		loop, lacking := newPod("loop"), newPod("lacking")
		loop.Spec.Containers[0].Name = "crash"
		lacking.Spec.Containers[0].Image = "missing:1"
		s.cri.Inject(fakecri.Fault{RPC: "PullImage", Image: "missing:1", Times: -1})
		size := func() int64 {
			info, err := os.Stat(filepath.Join(s.cfg.RootDirectory, stateFile))
			require.NoError(t, err)
			return info.Size()
		}
		heap := func() uint64 {
			goruntime.GC()
			var m goruntime.MemStats
			goruntime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		s.send("file", loop, lacking)
		s.after(12 * time.Hour)
		require.Greater(t, s.reasons("lacking")["Failed"], 5)
		sizeBefore, heapBefore, routines := size(), heap(), goruntime.NumGoroutine()
		for range 2*weekDays - 1 {
			s.restart()
			s.send("file", loop)
			s.after(12 * time.Hour)
		}
		require.LessOrEqual(t, len(s.a.events.List()), 100)
		require.Greater(t, s.reasons("loop")["BackOff"], 5, "the last hour is told")
		require.LessOrEqual(t, size(), 2*sizeBefore)
		require.LessOrEqual(t, heap(), heapBefore+(8<<20))
		require.LessOrEqual(t, goruntime.NumGoroutine(), routines+5)
		require.GreaterOrEqual(t, s.shown("loop").Status.ContainerStatuses[0].RestartCount, int32(weekDays*(24*12-15)))
	})
}
