package logs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

// parse reads a datagram as journald does.
func parse(t *testing.T, entry []byte) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for len(entry) > 0 {
		line, rest, ok := bytes.Cut(entry, []byte("\n"))
		require.True(t, ok)
		name, value, short := strings.Cut(string(line), "=")
		if !short {
			size := binary.LittleEndian.Uint64(rest)
			value = string(rest[8 : 8+size])
			require.EqualValues(t, '\n', rest[8+size])
			rest = rest[9+size:]
		}
		require.NotContains(t, fields, name, "a field twice")
		fields[name] = value
		entry = rest
	}
	return fields
}

func journald(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // it may be closed
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) map[string]string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	require.NoError(t, err)
	return parse(t, buf[:n])
}

// TestJournal: each line is an entry with priority and fields, by which journalctl
// can select.
func TestJournal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	conn := journald(t, socket)
	out := setup(t, Options{Format: Text, Verbosity: 1, Destination: Destination{Journal: true, JournalSocket: socket}})
	logAll()
	entry := receive(t, conn)
	require.True(t, strings.HasSuffix(entry["CODE_FILE"], "logs_test.go"))
	require.True(t, strings.HasSuffix(entry["CODE_FUNC"], "logs.logAll"))
	require.NotEmpty(t, entry["CODE_LINE"])
	delete(entry, "CODE_FILE")
	delete(entry, "CODE_LINE")
	delete(entry, "CODE_FUNC")
	require.Equal(t, map[string]string{
		"MESSAGE": `Cannot store err="disk full" pod="dock/web" podUID="1-2"`, "PRIORITY": "3", "SYSLOG_IDENTIFIER": "nodelet",
		"ERR": "disk full", "POD_NAMESPACE": "dock", "POD_NAME": "web", "POD_UID": "1-2",
	}, entry)
	entry = receive(t, conn)
	require.Equal(t, "6", entry["PRIORITY"])
	require.Equal(t, "2", entry["COUNT"])
	entry = receive(t, conn)
	require.Equal(t, "7", entry["PRIORITY"])
	require.Equal(t, "main", entry["CONTAINER_NAME"])
	require.Equal(t, "a\nb", entry["MULTI"])
	entry = receive(t, conn)
	require.Equal(t, "old way", entry["MESSAGE"])
	require.Equal(t, "4", entry["PRIORITY"])
	entry = receive(t, conn)
	require.Equal(t, "main", entry["CONTAINER_NAME"])
	require.Equal(t, "web", entry["POD_NAME"])
	require.Equal(t, "told", entry["NODELET_MESSAGE"], "a field of ours is not the journal's")
	require.Empty(t, out.String())
}

// TestJournalAway: without journald, and for what does not fit, lines go to the
// stream with their priority; a new journald gets the next ones.
func TestJournalAway(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	out := setup(t, Options{Format: Text, Destination: Destination{Journal: true, JournalSocket: socket}})
	klog.ErrorS(errors.New("line\nbreak"), "Alone")
	slog.Warn("two\nlines")
	require.Equal(t, "<3>Alone err=\"line\\nbreak\"\n<4>two\n<4>lines\n", out.String())
	out.Reset()

	conn := journald(t, socket)
	klog.InfoS("Back")
	require.Equal(t, "Back", receive(t, conn)["MESSAGE"])
	require.NoError(t, conn.Close())
	require.NoError(t, os.Remove(socket))
	conn = journald(t, socket)
	klog.InfoS("Again")
	require.Equal(t, "Again", receive(t, conn)["MESSAGE"])
	require.Empty(t, out.String())

	klog.InfoS(strings.Repeat("x", 1<<20))
	require.True(t, strings.HasPrefix(out.String(), "<6>xxx"))
	klog.InfoS("After it")
	require.Equal(t, "After it", receive(t, conn)["MESSAGE"])
}

// TestFieldNames: keys become what the journal accepts as a field.
func TestFieldNames(t *testing.T) {
	for key, want := range map[string]string{
		"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "container": "CONTAINER_NAME", "podUID": "POD_UID", "maxPods": "MAX_PODS",
		"message": "NODELET_MESSAGE", "codeFile": "NODELET_CODE_FILE", "_x": "X", "2nd": "NODELET_2ND", "a.b-ü": "A_B", "": "NODELET_",
		strings.Repeat("k", 80): strings.Repeat("K", 64),
	} {
		require.Equal(t, want, fieldName(key), key)
	}
}
