package source

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// page is a server whose one answer a test can change.
type page struct {
	mu     sync.Mutex
	status int
	body   string
	header http.Header
}

func (p *page) set(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body = status, body
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	status, body := p.status, p.body
	p.header = r.Header.Clone()
	p.mu.Unlock()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// CFG-15, Q-3, INV-6.
func TestHTTP(t *testing.T) {
	p := &page{status: http.StatusServiceUnavailable}
	server := httptest.NewServer(p)
	defer server.Close()
	h := &HTTP{URL: server.URL, Every: 10 * time.Millisecond, Header: http.Header{"x-token": {"secret"}}}
	out := start(t, h)
	never(t, out, 200*time.Millisecond, any1)
	require.Contains(t, h.Problems()[0].Message, "503")
	p.set(http.StatusOK, "<html>please log in</html>")
	never(t, out, 200*time.Millisecond, any1)

	p.set(http.StatusOK, manifest("a", "one"))
	s := until(t, out, "a=one")
	require.Equal(t, "http", pod.Source(s.Pods[0]))
	require.Equal(t, server.URL, pod.Origin(s.Pods[0]))
	p.mu.Lock()
	require.Equal(t, "secret", p.header.Get("X-Token"))
	p.mu.Unlock()

	p.set(http.StatusOK, `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"b"},"spec":{"containers":[{"name":"x","image":"y"}]}}]}`)
	until(t, out, "b=y")
	p.set(http.StatusOK, "{broken")
	until(t, out, "b=y !Syntax(kept)")
	p.set(http.StatusNotFound, "")
	until(t, out, "b=y !Unreachable(kept) !Syntax(kept)")
	p.set(http.StatusOK, "")
	until(t, out, "b=y !Empty(kept)")
	p.set(http.StatusOK, `{"apiVersion":"v1","kind":"PodList","items":[]}`)
	until(t, out, "")
	server.Close()
	until(t, out, "!Unreachable(kept)")
}

// A password in the URL shows nowhere.
func TestHTTPRedacted(t *testing.T) {
	h := &HTTP{URL: "http://user:hunter2@127.0.0.1:1/", Every: 10 * time.Millisecond}
	start(t, h)
	require.Eventually(t, func() bool { return len(h.Problems()) > 0 }, patient, time.Millisecond)
	require.NotContains(t, h.Problems()[0].Message, "hunter2")
}
