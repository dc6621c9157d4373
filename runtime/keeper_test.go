package runtime

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeptConnection holds a connection open beyond its owner, and is ended with
// it when it is closed in order.
func TestKeptConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	conn, err := dialKept(t.Context(), "unix://"+socket)
	require.NoError(t, err)
	kept, ok := conn.(*keptConn)
	require.True(t, ok, "there is a keeper")
	peer, err := l.Accept()
	require.NoError(t, err)

	// A reader in flight must not keep Close from returning: the socket would be
	// in blocking mode.
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()

	// The owner's copy goes, as with a dead process: the peer sees nothing.
	require.NoError(t, kept.Conn.Close())
	require.Error(t, <-read)
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = peer.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")

	kept.end()
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = peer.Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the keeper is gone, and with it the connection")
}
