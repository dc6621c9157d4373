package source

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRescan: a source that no event wakes looks when it is told to, and from
// then on as often as it is told to.
func TestRescan(t *testing.T) {
	dir := t.TempDir()
	f := &File{Path: dir, ScanEvery: time.Hour, newWatcher: func() (watcher, error) { return noWatcher{}, nil }}
	out := start(t, f)
	require.Equal(t, "", summary(<-out))
	write(t, filepath.Join(dir, "a.yaml"), manifest("a", "one"))
	never(t, out, 200*time.Millisecond, any1)
	f.Rescan(time.Hour)
	until(t, out, "a=one")
	f.Rescan(10 * time.Millisecond)
	write(t, filepath.Join(dir, "b.yaml"), manifest("b", "two"))
	until(t, out, "a=one b=two")
}

// TestFetch: the same for what is fetched, with other headers.
func TestFetch(t *testing.T) {
	p := &page{status: http.StatusOK, body: manifest("a", "one")}
	server := httptest.NewServer(p)
	defer server.Close()
	h := &HTTP{URL: server.URL, Every: time.Hour, Header: http.Header{"X-Token": {"old"}}}
	out := start(t, h)
	until(t, out, "a=one")
	p.set(http.StatusOK, manifest("a", "two"))
	never(t, out, 200*time.Millisecond, any1)
	h.Fetch(http.Header{"X-Token": {"new"}}, time.Hour)
	until(t, out, "a=two")
	p.mu.Lock()
	require.Equal(t, "new", p.header.Get("X-Token"))
	p.mu.Unlock()
	p.set(http.StatusOK, manifest("a", "three"))
	h.Fetch(nil, 10*time.Millisecond)
	until(t, out, "a=three")
	p.set(http.StatusOK, manifest("a", "four"))
	until(t, out, "a=four")
}

// TestNudge: what was told last counts, and what was not told keeps what was.
func TestNudge(t *testing.T) {
	var n nudge[int]
	require.Equal(t, 1, n.take(1))
	n.put(2)
	n.put(3)
	<-n.wake()
	require.Equal(t, 3, n.take(1))
	require.Empty(t, n.wake())
	require.Equal(t, 3, n.take(3))
}
