package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/server"
)

// agent is what a server shows.
type agent struct {
	live   error
	checks []server.Check
	debug  server.Debug
}

func (a *agent) Debug() server.Debug { return a.debug }

func (*agent) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a_metric 1\n") })
}

func (a *agent) Live() error                           { return a.live }
func (a *agent) Checks(context.Context) []server.Check { return a.checks }

func (*agent) Pods() *corev1.PodList {
	return &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}},
	}
}

func (*agent) EventsSince(revision uint64) (changed []corev1.Event, newest uint64, next <-chan struct{}) {
	return []corev1.Event{{Reason: "Started", Count: 2}}, 7, nil
}

func (*agent) Status(context.Context) server.Status {
	return server.Status{Version: "v1", Node: "edge", Sources: []server.SourceState{{Name: "file", Delivered: true, Pods: 3}}}
}

func get(t *testing.T, a server.Agent, path string) (code int, kind, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	server.Handler(a).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Header().Get("Content-Type"), w.Body.String()
}

func TestHealth(t *testing.T) {
	for _, path := range []string{"/healthz", "/livez"} {
		code, _, body := get(t, &agent{}, path)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "ok", body)
		code, _, body = get(t, &agent{live: errors.New("syncLoop has been in one round for 6m0s")}, path)
		require.Equal(t, http.StatusInternalServerError, code)
		require.Equal(t, "syncLoop has been in one round for 6m0s\n", body)
	}
}

// TestReadyz: the texts are those of Kubernetes' own components, so that scripts
// which read them keep working.
func TestReadyz(t *testing.T) {
	well := []server.Check{{Name: "ping"}, {Name: "runtime"}}
	ill := []server.Check{{Name: "ping"}, {Name: "runtime", Err: errors.New("nobody answers")}, {Name: "pleg", Err: errors.New("not yet")}}
	for _, c := range []struct {
		name   string
		checks []server.Check
		query  string
		code   int
		body   string
	}{
		{"all is well", well, "", 200, "ok"},
		{"all is well, in detail", well, "?verbose", 200, "[+]ping ok\n[+]runtime ok\nreadyz check passed\n"},
		{"something is wrong", ill, "", 503, "[+]ping ok\n[-]runtime failed: nobody answers\n[-]pleg failed: not yet\nreadyz check failed\n"},
		{"in detail it is the same", ill, "?verbose", 503, "[+]ping ok\n[-]runtime failed: nobody answers\n[-]pleg failed: not yet\nreadyz check failed\n"},
		{"one left out", ill, "?exclude=runtime", 503, "[+]ping ok\n[+]runtime excluded: ok\n[-]pleg failed: not yet\nreadyz check failed\n"},
		{"all that fail left out", ill, "?exclude=runtime&exclude=pleg", 200, "ok"},
		{"and told", ill, "?verbose=true&exclude=runtime&exclude=pleg", 200, "[+]ping ok\n[+]runtime excluded: ok\n[+]pleg excluded: ok\nreadyz check passed\n"},
		{"one left out that does not exist", well, "?exclude=nothing&verbose", 200, "[+]ping ok\n[+]runtime ok\nreadyz check passed\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, kind, body := get(t, &agent{checks: c.checks}, "/readyz"+c.query)
			require.Equal(t, c.code, code)
			require.Equal(t, "text/plain; charset=utf-8", kind)
			require.Equal(t, c.body, body)
		})
	}
}

func TestObjects(t *testing.T) {
	var pods corev1.PodList
	code, kind, body := get(t, &agent{}, "/pods")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "application/json", kind)
	require.NoError(t, json.Unmarshal([]byte(body), &pods))
	require.Equal(t, "PodList", pods.Kind)
	require.Equal(t, corev1.PodRunning, pods.Items[0].Status.Phase)

	var events corev1.EventList
	_, _, body = get(t, &agent{}, "/events")
	require.NoError(t, json.Unmarshal([]byte(body), &events))
	require.Equal(t, "EventList", events.Kind)
	require.EqualValues(t, 2, events.Items[0].Count)

	var st server.Status
	_, _, body = get(t, &agent{}, "/status")
	require.NoError(t, json.Unmarshal([]byte(body), &st))
	require.Equal(t, 3, st.Sources[0].Pods)
}

// TestOnlyReading: the socket changes nothing.
func TestOnlyReading(t *testing.T) {
	for _, path := range []string{"/pods", "/healthz", "/readyz", "/status", "/events"} {
		w := httptest.NewRecorder()
		server.Handler(&agent{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
	}
	code, _, _ := get(t, &agent{}, "/metrics/unknown")
	require.Equal(t, http.StatusNotFound, code)
}

// short returns a directory whose path is short enough for a socket.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "nl") //nolint:usetesting // t.TempDir is too long for a unix socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// TestListen makes the directory, replaces what a dead agent left, and keeps
// others out.
func TestListen(t *testing.T) {
	path := filepath.Join(short(t), "run", "deep", "a.sock")
	first, err := server.Listen(path, "nobody-has-this")
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o660), info.Mode().Perm())
	require.Zero(t, info.Sys().(*syscall.Stat_t).Gid, "there is no such group")
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, first.Close())
	second, err := server.Listen(path, "nobody-has-this")
	require.NoError(t, err)
	require.NoError(t, second.Close())

	_, err = server.Listen(filepath.Join(short(t), strings.Repeat("long", 40), "a.sock"), "nobody-has-this")
	require.ErrorContains(t, err, "cannot listen on ")

	file := filepath.Join(short(t), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = server.Listen(filepath.Join(file, "a.sock"), "nobody-has-this")
	require.ErrorContains(t, err, "cannot make the run directory: ")
}

// TestSocketGroup: members of the group may use the socket.
func TestSocketGroup(t *testing.T) {
	path := filepath.Join(short(t), "a.sock")
	l, err := server.Listen(path, "daemon")
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	group, err := user.LookupGroup("daemon")
	require.NoError(t, err)
	require.Equal(t, group.Gid, strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)))
	require.NoError(t, l.Close())
}

// TestServe answers on the socket until its context ends, and then does not wait
// for clients that stay connected.
func TestServe(t *testing.T) {
	path := filepath.Join(short(t), "a.sock")
	l, err := server.Listen(path, "nobody-has-this")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, &agent{}) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://agent/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	require.Equal(t, "ok", string(body))
	idle, err := new(net.Dialer).DialContext(ctx, "unix", path)
	require.NoError(t, err)
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "it does not end")
	}
	require.NoError(t, idle.Close())
	require.NoFileExists(t, path)
}

// TestServeFails: a listener that breaks is an error, not the end of a wait.
func TestServeFails(t *testing.T) {
	l, err := server.Listen(filepath.Join(short(t), "a.sock"), "nobody-has-this")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorContains(t, server.Serve(t.Context(), l, &agent{}), "cannot serve on ")
}
