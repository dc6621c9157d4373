package systemd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/systemd"
)

// manager is the receiving end of a notify socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func listen(t *testing.T, name string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	t.Setenv("NOTIFY_SOCKET", name)
	return &manager{t: t, conn: conn}
}

// next returns the next message.
func (m *manager) next() string {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	require.NoError(m.t, err)
	return string(buf[:n])
}

func notifier(t *testing.T) *systemd.Notifier {
	t.Helper()
	n, err := systemd.New()
	require.NoError(t, err)
	return n
}

// TestMessages: what is said arrives, on a socket in a directory and on an
// abstract one.
func TestMessages(t *testing.T) {
	for name, socket := range map[string]string{
		"a path": filepath.Join(t.TempDir(), "notify"), "abstract": "@nodelet-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			m := listen(t, socket)
			n := notifier(t)
			n.Ready()
			require.Equal(t, "READY=1", m.next())
			n.Status("waiting for runtime")
			n.Status("waiting for runtime")
			n.Status("2 pods,\nruntime ready")
			require.Equal(t, "STATUS=waiting for runtime", m.next())
			require.Equal(t, "STATUS=2 pods, runtime ready", m.next(), "the same text is told once, and on one line")
			n.Reloading()
			first, second, ok := strings.Cut(m.next(), "\n")
			require.True(t, ok)
			require.Equal(t, "RELOADING=1", first)
			usec, err := strconv.ParseInt(strings.TrimPrefix(second, "MONOTONIC_USEC="), 10, 64)
			require.NoError(t, err)
			require.Positive(t, usec)
			n.Stopping()
			require.Equal(t, "STOPPING=1", m.next())
		})
	}
}

// TestWithoutManager: a daemon that nobody supervises is not disturbed by that,
// nor is one whose manager has gone.
func TestWithoutManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := notifier(t)
	n.Ready()
	n.Status("alone")
	n.Watchdog(t.Context(), func() (string, time.Duration) {
		t.Error("nobody asked for a watchdog")
		return "", 0
	})
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	n.Ready()
	n.Stopping()
}

// TestWatchdogEnvironment: the interval counts for the process that it names.
func TestWatchdogEnvironment(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	_, err := systemd.New()
	require.ErrorContains(t, err, "cannot read the watchdog interval from WATCHDOG_USEC")

	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()+1))
	notifier(t).Watchdog(t.Context(), func() (string, time.Duration) {
		t.Error("the watchdog is for another process")
		return "", 0
	})
}

// TestStalledLoop: a stuck loop ends the feeding, and its going on begins it
// again.
func TestStalledLoop(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	n := notifier(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stuck atomic.Bool
	var asked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Watchdog(ctx, func() (string, time.Duration) {
			asked.Add(1)
			if stuck.Load() {
				return "syncLoop", 3 * time.Minute
			}
			return "", 0
		})
	}()
	for range 3 {
		require.Equal(t, "WATCHDOG=1", m.next())
	}
	stuck.Store(true)
	begun := asked.Load()
	require.Eventually(t, func() bool { return asked.Load() > begun+2 }, 30*time.Second, time.Millisecond)
	// All that was sent before is in the socket; the mark comes after it.
	n.Status("mark")
	for message := m.next(); message != "STATUS=mark"; message = m.next() {
		require.Equal(t, "WATCHDOG=1", message)
	}
	begun = asked.Load()
	require.Eventually(t, func() bool { return asked.Load() > begun+5 }, 30*time.Second, time.Millisecond)
	n.Status("still stuck")
	require.Equal(t, "STATUS=still stuck", m.next(), "nothing is fed while the loop is stuck")
	stuck.Store(false)
	require.Equal(t, "WATCHDOG=1", m.next())
	cancel()
	<-done
}
