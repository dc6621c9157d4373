package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// serviceManager is the other end of NOTIFY_SOCKET.
type serviceManager struct {
	conn *net.UnixConn

	mu       sync.Mutex // guards messages
	messages []string
}

// supervisedBy gives the nodes that are started from now on a service manager
// with a short watchdog.
func supervisedBy(t *testing.T, n *node) *serviceManager {
	t.Helper()
	socket := filepath.Join(n.dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	m := &serviceManager{conn: conn}
	var reading sync.WaitGroup
	reading.Go(m.read)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		reading.Wait()
	})
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "300000")
	return m
}

func (m *serviceManager) read() {
	buf := make([]byte, 4096)
	for {
		size, err := m.conn.Read(buf)
		if err != nil {
			return // it is closed
		}
		m.mu.Lock()
		m.messages = append(m.messages, string(buf[:size]))
		m.mu.Unlock()
	}
}

// told returns the messages from one on.
func (m *serviceManager) told(from int) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.messages[from:]...)
}

func told(messages []string, prefix string) int {
	found := 0
	for _, text := range messages {
		if strings.HasPrefix(text, prefix) {
			found++
		}
	}
	return found
}

// awaitFed waits until the watchdog was fed some more times.
func (m *serviceManager) awaitFed(n *node, why string) {
	n.t.Helper()
	from := len(m.told(0))
	n.eventually("the watchdog is fed: "+why, func() bool { return told(m.told(from), "WATCHDOG=1") >= 5 })
}

// awaitTold waits for a message and returns those from its place on.
func (m *serviceManager) awaitTold(n *node, from int, prefix string) {
	n.t.Helper()
	n.eventually(prefix, func() bool { return told(m.told(from), prefix) > 0 })
}

// TestServiceManager: the life of the daemon as its service manager sees it.
// READY=1 comes when the state is loaded and the socket answers, whatever the
// runtime does; the watchdog is fed whatever the runtime does.
func TestServiceManager(t *testing.T) {
	cri := fakecri.New(fakecri.Options{PullAny: true})
	t.Cleanup(cri.Close)
	n := bare(t, binary(t))
	m := supervisedBy(t, n)
	waiting := "STATUS=waiting for runtime at " + n.endpoint

	n.apply("web", webPod)
	n.start()
	m.awaitTold(n, 0, "READY=1")
	require.Equal(t, "READY=1", m.told(0)[0], "there is no runtime that could pull")
	m.awaitTold(n, 0, waiting)
	m.awaitFed(n, "without a runtime")

	unblock := cri.Inject(fakecri.Fault{RPC: "PullImage", Times: -1, Mode: fakecri.HangBefore})
	require.NoError(t, cri.Listen(strings.TrimPrefix(n.endpoint, "unix://")))
	m.awaitTold(n, 0, "STATUS=1 pod, runtime ready")
	m.awaitFed(n, "during a pull that hangs")
	unblock()

	mark := len(m.told(0))
	n.stop()
	m.awaitTold(n, mark, "STOPPING=1")
	require.Zero(t, told(m.told(mark), "READY=1"))
	require.Contains(t, m.told(mark), "STATUS=leaving; the pods run on")
	require.Zero(t, told(m.told(mark), waiting), "who leaves waits for nobody")

	n.start()
	n.awaitReady("web")
	n.kill()
	cri.Crash()
	mark = len(m.told(0))
	n.start()
	m.awaitTold(n, mark, "READY=1")
	require.Contains(t, n.pods(), "web", "ready means that the state is loaded and the socket answers")

	require.NoError(t, cri.Resume())
	m.awaitTold(n, mark, "STATUS=1 pod, runtime ready")
	n.remove("web")
	m.awaitTold(n, mark, "STATUS=0 pods, runtime ready")
	for name, fault := range map[string]func() func(){
		"it hangs":    func() func() { return cri.Inject(fakecri.Fault{Times: -1, Mode: fakecri.HangBefore}) },
		"it has gone": func() func() { cri.Crash(); return func() { require.NoError(t, cri.Resume()) } },
	} {
		mark = len(m.told(0))
		mend := fault()
		m.awaitTold(n, mark, waiting)
		m.awaitFed(n, name)
		mark = len(m.told(0))
		mend()
		m.awaitTold(n, mark, "STATUS=0 pods, runtime ready")
	}
}

// TestServiceManagerOfRefusal: a daemon that does not understand its state is up,
// is fed, and says why it does nothing.
func TestServiceManagerOfRefusal(t *testing.T) {
	n := bare(t, binary(t))
	n.serve()
	n.start()
	n.eventually("the agent answers", func() bool { return n.pods() != nil })
	n.stop()
	format := func(value []byte) (old []byte) {
		db, err := bbolt.Open(filepath.Join(n.dir, "root", "state.db"), 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket([]byte("meta"))
			old = append(old, meta.Get([]byte("format"))...)
			return meta.Put([]byte("format"), value)
		}))
		require.NoError(t, db.Close())
		return old
	}
	known := format([]byte("7"))
	m := supervisedBy(t, n)
	n.start()
	m.awaitTold(n, 0, "READY=1")
	m.awaitTold(n, 0, "STATUS=pods are left alone: ")
	m.awaitFed(n, "while the state is refused")
	mark := len(m.told(0))
	n.stop()
	m.awaitTold(n, mark, "STOPPING=1")
	format(known)
}

// TestWatchdogSettings: an interval that cannot be read is told, not ignored.
func TestWatchdogSettings(t *testing.T) {
	n := bare(t, binary(t))
	t.Setenv("WATCHDOG_USEC", "often")
	text := exits(t, exitFailure, n.bin, "run", "--config", n.config(), "--root-dir", filepath.Join(n.dir, "root"), "--run-dir", filepath.Join(n.dir, "run"))
	require.Contains(t, text, "nodelet: cannot read the watchdog interval from WATCHDOG_USEC")
}

// TestServiceManagerReload: a reload is told from its begin to its end, with the
// time that Type=notify-reload wants, and a bad configuration ends it too.
func TestServiceManagerReload(t *testing.T) {
	n := bare(t, binary(t))
	n.serve()
	m := supervisedBy(t, n)
	n.start()
	m.awaitTold(n, 0, "READY=1")
	good, err := os.ReadFile(n.config())
	require.NoError(t, err)
	for _, text := range []string{string(good), "nonsense: [", string(good)} {
		require.NoError(t, os.WriteFile(n.config(), []byte(text), 0o600))
		mark := len(m.told(0))
		require.NoError(t, n.process.Process.Signal(syscall.SIGHUP))
		m.awaitTold(n, mark, "READY=1")
		steps := slices.DeleteFunc(m.told(mark), func(text string) bool {
			return !strings.HasPrefix(text, "READY=") && !strings.HasPrefix(text, "RELOADING=")
		})
		require.Len(t, steps, 2)
		require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`, steps[0])
		require.Equal(t, "READY=1", steps[1])
	}
	m.awaitFed(n, "after a reload that failed")
}
