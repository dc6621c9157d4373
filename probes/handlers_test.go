package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nodelet.dev/nodelet/internal/pod"
)

// oneSecond is the shortest time that a probe can have.
const oneSecond = time.Second

func target(probe corev1.ProbeHandler, change ...func(*pod.ProbeTarget)) *pod.ProbeTarget {
	t := &pod.ProbeTarget{
		Container:   &corev1.Container{Name: "main", ReadinessProbe: &corev1.Probe{ProbeHandler: probe}},
		ContainerID: "main-0", Kind: pod.Readiness, IP: "127.0.0.1",
	}
	for _, c := range change {
		c(t)
	}
	return t
}

// ask makes a handler and asks once.
func ask(t *testing.T, target *pod.ProbeTarget, timeout time.Duration) (Result, string) {
	t.Helper()
	m := New(t.Context(), Options{})
	h, err := m.newHandler(target, timeout)
	require.NoError(t, err)
	r, said, err := h.ask(t.Context())
	require.NoError(t, err)
	return r, said
}

func portOfURL(t *testing.T, address string) intstr.IntOrString {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"))
	require.NoError(t, err)
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return intstr.FromInt(n)
}

// TestHTTPStatus: PRB-21, which answers are good.
func TestHTTPStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.WriteHeader(code)
		fmt.Fprint(w, "secret words")
	}))
	defer server.Close()
	for code, want := range map[int]Result{200: Success, 204: Success, 299: Success, 304: Warning, 399: Warning, 400: Failure, 404: Failure, 500: Failure, 503: Failure} {
		r, said := ask(t, target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: fmt.Sprint("/", code), Port: portOfURL(t, server.URL)}}), oneSecond)
		require.Equal(t, want, r, "%d", code)
		if want == Failure {
			require.Equal(t, fmt.Sprintf("HTTP probe failed with statuscode: %d", code), said, "what the server says is nobody's business")
		}
	}
}

// TestHTTPRequest: PRB-22 and PRB-23, what a server is asked.
func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Clone(context.Background()) }))
	defer server.Close()
	headers := func(pairs ...string) []corev1.HTTPHeader {
		var list []corev1.HTTPHeader
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
		return list
	}
	for name, c := range map[string]struct {
		path    string
		headers []corev1.HTTPHeader
		want    func(t *testing.T)
	}{
		"nothing given": {"", nil, func(t *testing.T) {
			t.Helper()
			require.Equal(t, "/", got.RequestURI)
			require.Equal(t, http.Header{"User-Agent": {DefaultUserAgent}, "Accept": {"*/*"}, "Connection": {"close"}}, got.Header)
			require.Equal(t, "HTTP/1.1", got.Proto)
			require.Equal(t, strings.TrimPrefix(server.URL, "http://"), got.Host)
		}},
		"a query": {"/healthz?verbose=1&x=a%20b", nil, func(t *testing.T) {
			t.Helper()
			require.Equal(t, "/healthz?verbose=1&x=a%20b", got.RequestURI)
		}},
		"no slash": {"healthz", nil, func(t *testing.T) {
			t.Helper()
			require.Equal(t, "/healthz", got.RequestURI)
		}},
		"own headers": {"/", headers("X-Multi", "a", "X-Multi", "b", "user-agent", "mine", "Accept", "text/plain", "Host", "shop.example"), func(t *testing.T) {
			t.Helper()
			require.Equal(t, []string{"a", "b"}, got.Header["X-Multi"])
			require.Equal(t, "mine", got.UserAgent())
			require.Equal(t, "text/plain", got.Header.Get("Accept"))
			require.Equal(t, "shop.example", got.Host)
		}},
		"empty headers": {"/", headers("User-Agent", "", "Accept", ""), func(t *testing.T) {
			t.Helper()
			require.NotContains(t, got.Header, "User-Agent")
			require.NotContains(t, got.Header, "Accept")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, said := ask(t, target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: c.path, Port: portOfURL(t, server.URL), HTTPHeaders: c.headers}}), oneSecond)
			require.Equal(t, Success, r, said)
			c.want(t)
		})
	}
}

// TestHTTPRedirects: PRB-21. They are followed on one host, ten times.
func TestHTTPRedirects(t *testing.T) {
	var asked atomic.Int32
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "/loop", http.StatusFound)
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusTemporaryRedirect)
	})
	for path, want := range map[string]Result{
		"/to?url=/ok": Success, "/to?url=/bad": Failure, "/to?url=http://elsewhere.invalid/ok": Warning, "/loop": Failure,
		"/to?url=" + server.URL + "/ok": Success,
	} {
		r, said := ask(t, target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: portOfURL(t, server.URL)}}), 10*oneSecond)
		require.Equal(t, want, r, "%s: %s", path, said)
		switch {
		case want == Warning:
			require.Contains(t, said, "Probe terminated redirects")
		case path == "/loop":
			require.Contains(t, said, "stopped after 10 redirects")
			require.EqualValues(t, 10, asked.Load())
		}
	}
}

// TestHTTPSAndLimits: certificates are not checked, connections are not kept, and
// an answer is neither read to its end nor waited for (PRB-21).
func TestHTTPSAndLimits(t *testing.T) {
	var protocol string
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol = r.Proto }))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	for _, scheme := range []corev1.URIScheme{"HTTPS", "https"} {
		r, said := ask(t, target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Scheme: scheme, Port: portOfURL(t, secure.URL)}}), 10*oneSecond)
		require.Equal(t, Success, r, said)
		require.Equal(t, "HTTP/1.1", protocol)
	}

	var connections, closed atomic.Int32
	hang := make(chan struct{})
	plain := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-hang
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		case "/stall":
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-hang
		}
	}))
	plain.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			connections.Add(1)
		case http.StateClosed:
			closed.Add(1)
		default:
		}
	}
	plain.Start()
	defer plain.Close()
	defer close(hang)
	get := func(path string) *pod.ProbeTarget {
		return target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: portOfURL(t, plain.URL)}})
	}
	for range 5 {
		r, said := ask(t, get("/"), 10*oneSecond)
		require.Equal(t, Success, r, said)
	}
	require.EqualValues(t, 5, connections.Load(), "each turn has its own")
	require.Eventually(t, func() bool { return closed.Load() == 5 }, 10*time.Second, 10*time.Millisecond)
	r, said := ask(t, get("/endless"), 10*oneSecond)
	require.Equal(t, Success, r, said)
	for _, path := range []string{"/hang", "/stall"} {
		r, said = ask(t, get(path), oneSecond)
		require.Equal(t, Failure, r, path)
		require.Contains(t, said, "no answer within 1s")
	}
}

// TestTCP: PRB-24.
func TestTCP(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := intstr.FromInt(listener.Addr().(*net.TCPAddr).Port)
	named := func(t *pod.ProbeTarget) {
		t.Container.Ports = []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "web", ContainerPort: port.IntVal}}
	}
	for name, one := range map[string]*pod.ProbeTarget{
		"number":            target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}),
		"number as a text":  target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(port.String())}}),
		"name":              target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}, named),
		"host of the probe": target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port, Host: "localhost"}}, func(t *pod.ProbeTarget) { t.IP = "" }),
	} {
		r, said := ask(t, one, 10*oneSecond)
		require.Equal(t, Success, r, "%s: %s", name, said)
	}
	require.NoError(t, listener.Close())
	r, said := ask(t, target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}), oneSecond)
	require.Equal(t, Failure, r)
	require.Contains(t, said, "connection refused")
}

// TestGRPC: PRB-25.
func TestGRPC(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	server, checks := grpc.NewServer(), health.NewServer()
	healthv1.RegisterHealthServer(server, checks)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	checks.SetServingStatus("sick", healthv1.HealthCheckResponse_NOT_SERVING)
	probe := func(port int32, service *string) *pod.ProbeTarget {
		return target(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: service}})
	}
	for name, c := range map[string]struct {
		service *string
		want    Result
		said    string
	}{
		"the server as a whole": {nil, Success, "service healthy"},
		"no name":               {new(""), Success, "service healthy"},
		"not serving":           {new("sick"), Failure, `responded with "NOT_SERVING"`},
		"unknown":               {new("nobody"), Failure, "unknown service"},
	} {
		r, said := ask(t, probe(port, c.service), 10*oneSecond)
		require.Equal(t, c.want, r, "%s: %s", name, said)
		require.Contains(t, said, c.said, name)
	}

	bare, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	without := grpc.NewServer()
	go func() { _ = without.Serve(bare) }()
	defer without.Stop()
	r, said := ask(t, probe(int32(bare.Addr().(*net.TCPAddr).Port), nil), 10*oneSecond) //nolint:gosec // a port
	require.Equal(t, Failure, r)
	require.Contains(t, said, "does not implement")

	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	r, said = ask(t, probe(int32(silent.Addr().(*net.TCPAddr).Port), nil), oneSecond) //nolint:gosec // a port
	require.Equal(t, Failure, r)
	require.Contains(t, said, "did not complete within 1s")
	server.Stop()
	r, _ = ask(t, probe(port, nil), 10*oneSecond)
	require.Equal(t, Failure, r, "refused")
}

// execs answers commands.
type execs func(ctx context.Context, id string, command []string, timeout time.Duration) (string, int, error)

func (e execs) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration, _ int) (output string, code int, err error) {
	return e(ctx, id, command, timeout)
}

// TestExec: PRB-20.
func TestExec(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		err    error
		want   Result
		said   string
		failed bool
	}{
		"zero":             {want: Success},
		"not zero":         {code: 3, want: Failure, said: "the output"},
		"too long":         {err: pod.Errorf(pod.ClassDeadline, "", "late"), want: Failure, said: `command timed out: "check -x" timed out after 1s`},
		"no such command":  {err: errors.New("not found"), want: None, failed: true},
		"runtime not here": {err: pod.Errorf(pod.ClassUnavailable, "", "away"), want: None, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(t.Context(), Options{Execer: execs(func(_ context.Context, id string, command []string, timeout time.Duration) (string, int, error) {
				require.Equal(t, "main-0", id)
				require.Equal(t, []string{"check", "-x"}, command)
				require.Equal(t, oneSecond, timeout)
				return "the output", c.code, c.err
			})})
			h, err := m.newHandler(target(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check", "-x"}}}), oneSecond)
			require.NoError(t, err)
			r, said, err := h.ask(t.Context())
			require.Equal(t, c.want, r)
			require.Equal(t, c.failed, err != nil)
			if c.said != "" {
				require.Equal(t, c.said, said)
			}
		})
	}
}

// TestExpand: PRB-20, Q-26. Only what the pod itself gives is known.
func TestExpand(t *testing.T) {
	env := []corev1.EnvVar{
		{Name: "PORT", Value: "80"},
		{Name: "URL", Value: "http://localhost:$(PORT)"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{}},
	}
	require.Equal(t, []string{"get", "http://localhost:80/x", "$(NODE)", "$(NOBODY)", "$(PORT)"},
		expand([]string{"get", "$(URL)/x", "$(NODE)", "$(NOBODY)", "$$(PORT)"}, env))
}

// TestBadProbes: what cannot be asked at all says why.
func TestBadProbes(t *testing.T) {
	m := New(t.Context(), Options{})
	for want, one := range map[string]*pod.ProbeTarget{
		"the probe has no handler":                                target(corev1.ProbeHandler{}),
		"the pod has no address":                                  target(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(1)}}, func(t *pod.ProbeTarget) { t.IP = "" }),
		`container main has no port that is called "web"`:         target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}),
		"70000 is not a port":                                     target(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 70000}}),
		"the request cannot be made: parse \"http://a%20b:80/x\"": target(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "a b", Path: "/x", Port: intstr.FromInt(80)}}),
	} {
		_, err := m.newHandler(one, oneSecond)
		require.ErrorContains(t, err, want)
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc", cut("abc", 3))
	require.Equal(t, "ab", cut("abc", 2))
	require.Equal(t, "a", cut("aé", 2), "no half of a character")
	require.Equal(t, "a\uFFFD", cut("a\xff", 9))
}
