package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// headerTimeout is how long a client may take to say what it wants.
const headerTimeout = 10 * time.Second

// Listen opens the agent's socket, mode 0660, and replaces one that was left
// behind. The lock on the root directory keeps two agents apart. The members of
// group may use it, if there is such a group.
func Listen(path, group string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the run directory: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := errors.Join(os.Chmod(path, 0o660), giveTo(path, group)); err != nil {
		return nil, fmt.Errorf("cannot set mode and group of %s: %w", path, errors.Join(err, l.Close()))
	}
	return l, nil
}

// giveTo makes a file the group's. One that does not exist changes nothing: only
// root may use the file then.
func giveTo(path, group string) error {
	g, err := user.LookupGroup(group)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		return nil
	}
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, -1, gid)
}

// Serve answers requests until ctx ends.
func Serve(ctx context.Context, l net.Listener, a Agent) error { return serve(ctx, l, Handler(a)) }

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("cannot serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Requests answer from snapshots, so there is nothing to wait for.
	err := s.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		return errors.Join(served, err)
	}
	return err
}

// Handler returns the endpoints.
func Handler(a Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", live(a))
	mux.HandleFunc("GET /livez", live(a))
	mux.HandleFunc("GET /readyz", ready(a))
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Pods()) })
	mux.HandleFunc("GET /events", listEvents(a))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, a.Status(r.Context())) })
	mux.Handle("GET /metrics", a.Metrics())
	debugHandlers(mux, a.Debug())
	return mux
}

func live(a Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Live(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		text(w, "ok")
	}
}

// ready answers ok, or the checks that fail; all of them when asked verbosely.
// ?exclude=NAME leaves a check out, as in Kubernetes.
func ready(a Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		excluded := map[string]bool{}
		for _, name := range r.URL.Query()["exclude"] {
			excluded[name] = true
		}
		var b strings.Builder
		failed := 0
		for _, c := range a.Checks(r.Context()) {
			switch {
			case excluded[c.Name]:
				fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.Name)
			case c.Err != nil:
				failed++
				fmt.Fprintf(&b, "[-]%s failed: %v\n", c.Name, c.Err)
			default:
				fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
			}
		}
		switch {
		case failed > 0:
			http.Error(w, b.String()+"readyz check failed", http.StatusServiceUnavailable)
		case r.URL.Query().Has("verbose"):
			text(w, b.String()+"readyz check passed\n")
		default:
			text(w, "ok")
		}
	}
}

func text(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write([]byte(s)); err != nil {
		klog.V(4).InfoS("Cannot answer", "err", err)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		klog.V(4).InfoS("Cannot answer", "err", err)
	}
}
