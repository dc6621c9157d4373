package agent

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestNarrator: the line follows what is known, asks the runtime six times a
// minute at most, and its absence is logged once a minute.
func TestNarrator(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		var log logged
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
		klog.SetOutputBySeverity("INFO", &log) // of all severities, once
		defer klog.SetOutput(io.Discard)
		n := s.a.Narrator()
		line := func() string {
			text := n.Line(s.Context())
			klog.Flush()
			return text
		}
		require.Equal(s, "0 pods, runtime ready", line())
		s.send("file", newPod("a"))
		require.Equal(s, "1 pod, runtime ready", line())
		s.send("file", newPod("a"), newPod("b"))
		require.Equal(s, "2 pods, runtime ready", line())

		before := len(s.calls("Status", ""))
		for range 30 {
			s.after(2 * time.Second)
			require.Equal(s, "2 pods, runtime ready", line())
		}
		require.LessOrEqual(s, len(s.calls("Status", ""))-before, 6)

		s.cri.SetReady(true, false, "no CNI configuration")
		s.after(askPeriod)
		require.Equal(s, "2 pods, runtime ready, network not ready: no CNI configuration", line())
		s.cri.SetReady(false, false, "starting")
		s.after(askPeriod)
		require.Equal(s, "2 pods, runtime not ready: starting", line())
		s.cri.SetReady(true, true, "")
		require.NotContains(s, log.String(), "Waiting for")

		for _, mode := range []fakecri.Mode{fakecri.FailBefore, fakecri.HangBefore} {
			remove := s.cri.Inject(fakecri.Fault{Times: -1, Mode: mode})
			s.after(askPeriod)
			for range 150 {
				require.Equal(s, "waiting for runtime at memory", line())
				s.after(time.Second)
			}
			told := strings.Count(log.String(), "Waiting for the container runtime")
			require.GreaterOrEqual(s, told, 3, log.String())
			require.Contains(s, log.String(), `endpoint="memory"`)
			remove()
			s.after(3 * time.Minute) // the hanging calls have their bounds
			require.Equal(s, "2 pods, runtime ready", line())
			require.Equal(s, 1, strings.Count(log.String(), "The container runtime answers"))
			if mode == fakecri.FailBefore {
				require.Equal(s, 3, told, log.String())
			}
			log.Reset()
		}
	})
}

// logged is a log that is written and read at the same time.
type logged struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// TestStalled: neither an idle node nor a runtime that hangs or has gone makes a
// loop count as stuck; a loop that does not go round does.
func TestStalled(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		alive := func(why string) {
			s.Helper()
			loop, since := s.a.Stalled()
			require.Empty(s, loop, "%s: %s", why, since)
		}
		s.send("file", newPod("a"))
		s.after(time.Hour)
		alive("an idle node")
		for _, mode := range []fakecri.Mode{fakecri.HangBefore, fakecri.FailBefore} {
			remove := s.cri.Inject(fakecri.Fault{Times: -1, Mode: mode})
			for range 100 {
				s.after(10 * time.Second)
				alive("a runtime that does not answer")
			}
			remove()
		}
		s.after(10 * time.Minute)
		alive("it is back")

		require.NoError(s, s.inner.stop()) // no loop goes round any more
		s.after(loopStuck - 20*time.Second)
		alive("a long round")
		s.after(time.Minute)
		loop, since := s.a.Stalled()
		require.Equal(s, "syncLoop", loop)
		require.Greater(s, since, loopStuck)
		s.a.goneRound()
		loop, since = s.a.Stalled()
		require.Equal(s, "pleg", loop)
		require.Greater(s, since, loopStuck)
	})
}
