package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/server"
)

// TestDebugOff: what is not allowed says which field allows it.
func TestDebugOff(t *testing.T) {
	for path, want := range map[string]string{
		"/debug/pprof/":        "cannot show profiles: set enableProfilingHandler: true in the configuration and restart nodelet\n",
		"/debug/pprof/heap":    "cannot show profiles: set enableProfilingHandler: true in the configuration and restart nodelet\n",
		"/debug/pprof/profile": "cannot show profiles: set enableProfilingHandler: true in the configuration and restart nodelet\n",
		"/debug/state":         "cannot show the state: set enableStateDump: true in the configuration and restart nodelet\n",
	} {
		code, _, body := get(t, &agent{}, path)
		require.Equal(t, http.StatusNotFound, code, path)
		require.Equal(t, want, body, path)
	}
}

func TestDebugOn(t *testing.T) {
	a := &agent{debug: server.Debug{Profiling: true, State: func(context.Context) any { return map[string]int{"pods": 3} }}}
	code, kind, body := get(t, a, "/debug/state")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "application/json", kind)
	require.JSONEq(t, `{"pods": 3}`, body)
	code, _, body = get(t, a, "/debug/pprof/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "goroutine")
	code, _, body = get(t, a, "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "TestDebugOn")
	code, _, body = get(t, a, "/debug/pprof/cmdline")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "server.test")
	w := httptest.NewRecorder()
	server.Handler(a).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/debug/state", http.NoBody))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestMetricsOnSocket(t *testing.T) {
	code, _, body := get(t, &agent{}, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "a_metric 1\n", body)
}

// fetch gets a URL; a code of zero means that nobody answered.
func fetch(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(text)
}

// TestServeMetrics: the TCP address has the metrics and nothing of the pods, and
// one that is in use is waited for.
func TestServeMetrics(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := taken.Addr().String()
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan error, 10)
	ended := make(chan error, 1)
	a := &agent{debug: server.Debug{Profiling: true, State: func(context.Context) any { return 1 }}}
	go func() { ended <- server.ServeMetrics(ctx, address, a, func(err error) { told <- err }) }()
	err = <-told
	require.ErrorContains(t, err, "cannot serve the metrics on "+address+" (metricsBindAddress): ")
	require.ErrorContains(t, err, "address already in use; it is tried again every 5s")
	require.NoError(t, taken.Close())
	require.Eventually(t, func() bool {
		code, _ := fetch(t, "http://"+address+"/healthz")
		return code == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, <-told)
	require.Empty(t, told, "it is told once")
	code, body := fetch(t, "http://"+address+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "a_metric 1\n", body)
	for _, path := range []string{"/pods", "/events", "/status", "/readyz", "/debug/state", "/debug/pprof/"} {
		code, _ := fetch(t, "http://"+address+path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
	leave()
	require.NoError(t, <-ended)
}

// TestServeMetricsLeaves: an agent that leaves does not wait for an address.
func TestServeMetricsLeaves(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	ctx, leave := context.WithCancel(t.Context())
	require.NoError(t, server.ServeMetrics(ctx, taken.Addr().String(), &agent{}, func(error) { leave() }))
}
