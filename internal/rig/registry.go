package rig

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is a registry on the loopback interface that misbehaves on demand. Runtimes reach it without any
// configuration, since they speak plain HTTP to loopback addresses.
type Registry struct {
	address string
	server  *http.Server
	store   http.Handler
	served  chan struct{}

	mu    sync.Mutex // guards rules and pulls, never held while answering
	rules map[string]rule
	pulls map[string]int
}

// rule says how one repository, such as "busybox", misbehaves.
type rule struct {
	hidden   bool
	user     string
	password string
	delay    time.Duration
	stalled  chan struct{}
}

// NewRegistry starts a registry on a free port of 127.0.0.1.
func NewRegistry(ctx context.Context) (*Registry, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start the registry: %w", err)
	}
	r := &Registry{
		address: listener.Addr().String(),
		store:   registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		served:  make(chan struct{}),
		rules:   map[string]rule{},
		pulls:   map[string]int{},
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(r.served)
		// It always ends with an error, normally because Close was called.
		_ = r.server.Serve(listener)
	}()
	return r, nil
}

// Address is host and port, the first part of the names of the registry's images.
func (r *Registry) Address() string { return r.address }

// Close ends the registry and every request that it stalls.
func (r *Registry) Close() error {
	err := r.server.Close()
	<-r.served
	if err != nil {
		return fmt.Errorf("cannot close the registry: %w", err)
	}
	return nil
}

// Push stores an image under a name such as "busybox:2" and returns the full name to pull. It ignores the rules.
func (r *Registry) Push(ctx context.Context, ref string, image v1.Image) (string, error) {
	full := r.address + "/" + ref
	tag, err := name.NewTag(full, name.Insecure)
	if err != nil {
		return "", fmt.Errorf("cannot push image %q: %w", ref, err)
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx), remote.WithTransport(direct{r.store})); err != nil {
		return "", fmt.Errorf("cannot push image %q: %w", ref, err)
	}
	return full, nil
}

// Hide makes every image of a repository unknown (404) until Show.
func (r *Registry) Hide(repository string) { r.change(repository, func(u *rule) { u.hidden = true }) }

// Show ends Hide.
func (r *Registry) Show(repository string) { r.change(repository, func(u *rule) { u.hidden = false }) }

// Protect answers 401 to whoever does not give the user and the password.
func (r *Registry) Protect(repository, user, password string) {
	r.change(repository, func(u *rule) { u.user, u.password = user, password })
}

// Delay makes every blob of a repository wait before it is sent.
func (r *Registry) Delay(repository string, delay time.Duration) {
	r.change(repository, func(u *rule) { u.delay = delay })
}

// Stall makes every blob of a repository wait until Resume.
func (r *Registry) Stall(repository string) {
	r.change(repository, func(u *rule) {
		if u.stalled == nil {
			u.stalled = make(chan struct{})
		}
	})
}

// Resume ends Stall; requests that wait go on.
func (r *Registry) Resume(repository string) {
	r.change(repository, func(u *rule) {
		if u.stalled != nil {
			close(u.stalled)
			u.stalled = nil
		}
	})
}

// Pulls counts the times that the tag of an image, such as "busybox:2", was resolved: once per pull, whatever the
// runtime has already.
func (r *Registry) Pulls(ref string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[ref]
}

func (r *Registry) change(repository string, set func(*rule)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.rules[repository]
	set(&u)
	r.rules[repository] = u
}

// ServeHTTP applies the repository's rule, then serves from the store.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	repository, kind, ref := parsePath(req.URL.Path)
	r.mu.Lock()
	u := r.rules[repository]
	if kind == "manifests" && !strings.HasPrefix(ref, "sha256:") {
		r.pulls[repository+":"+ref]++
	}
	r.mu.Unlock()
	if u.user != "" {
		if user, password, _ := req.BasicAuth(); user != u.user || password != u.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="rig"`)
			writeError(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
	}
	if u.hidden && kind == "manifests" {
		writeError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "manifest unknown")
		return
	}
	if kind == "blobs" && !pauseBlob(req.Context(), u) {
		return
	}
	r.store.ServeHTTP(w, req)
}

// pauseBlob waits as the rule says and tells whether the client is still there.
func pauseBlob(ctx context.Context, u rule) bool {
	if u.stalled != nil {
		select {
		case <-u.stalled:
		case <-ctx.Done():
			return false
		}
	}
	if u.delay > 0 {
		select {
		case <-time.After(u.delay):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, message)
}

// parsePath takes /v2/REPOSITORY/KIND/REF apart; a repository may hold slashes.
func parsePath(path string) (repository, kind, ref string) {
	parts := strings.Split(strings.TrimPrefix(path, "/v2/"), "/")
	if len(parts) < 3 {
		return "", "", ""
	}
	last := len(parts) - 1
	return strings.Join(parts[:last-1], "/"), parts[last-1], parts[last]
}

// direct sends a request to a handler without a connection, so that pushing meets no rule and counts as no pull.
type direct struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	inbound := req.Clone(req.Context())
	if inbound.Body == nil {
		inbound.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, inbound)
	response := recorder.Result()
	response.Request = req
	return response, nil
}
