package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// HTTPName is what pods of an HTTP source carry in pod.SourceAnnotation.
const HTTPName = "http"

const (
	httpEvery   = 20 * time.Second
	httpTimeout = 10 * time.Second
)

// HTTP is a source that fetches manifests from a URL (CFG-15).
type HTTP struct {
	URL    string
	Header http.Header
	// Every is how often to fetch; 20 s when zero.
	Every time.Duration
	// LastGood are the pods delivered before the agent was started again, by
	// origin, which is the URL without its password.
	LastGood map[string][]*corev1.Pod

	problems atomic.Pointer[[]Problem]
	fetches  nudge[fetching]
}

// fetching is how to fetch from now on.
type fetching struct {
	header http.Header
	every  time.Duration
}

// Fetch makes Run fetch now, and from then on with these headers and as often as
// given.
func (h *HTTP) Fetch(header http.Header, every time.Duration) {
	h.fetches.put(fetching{header.Clone(), every})
}

// Problems returns what is wrong at the moment, also before the first set.
func (h *HTTP) Problems() []Problem {
	if p := h.problems.Load(); p != nil {
		return slices.Clone(*p)
	}
	return nil
}

// Run delivers the set whenever it has changed, until the context ends. While
// the URL cannot be fetched the last set stays in force, and nothing is
// delivered before it was fetched for the first time.
func (h *HTTP) Run(ctx context.Context, out chan<- Set) error {
	how := fetching{h.Header, h.Every}
	target, err := url.Parse(h.URL)
	if err != nil {
		return fmt.Errorf("cannot use the URL of the HTTP source: %w", err)
	}
	f := fetcher{
		url: h.URL, origin: target.Redacted(), header: h.Header,
		held: newHeld(HTTPName, h.LastGood), client: &http.Client{Timeout: httpTimeout},
	}
	defer f.client.CloseIdleConnections()
	for name := range h.LastGood {
		if name != f.origin {
			f.held.forget(name) // of a URL that was configured before
		}
	}
	var d delivery
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d.channel(out) <- d.set:
			d.sent()
			continue
		case <-h.fetches.wake():
			how = h.fetches.take(how)
			f.header = how.header
		case <-timer.C:
		}
		set, deliver := f.round(ctx, d.any)
		h.problems.Store(&set.Problems)
		if deliver {
			d.offer(set)
		}
		every := how.every
		if every <= 0 {
			every = httpEvery
		}
		timer.Reset(every)
	}
}

// fetcher does one round after the other. The goroutine of Run owns it.
type fetcher struct {
	url      string
	origin   string // the URL without its password
	header   http.Header
	client   *http.Client
	held     *held
	accepted []byte // the last body without a problem
}

// round fetches once and says whether the set is one to deliver.
func (f *fetcher) round(ctx context.Context, delivered bool) (Set, bool) {
	body, err := f.fetch(ctx)
	if err != nil {
		p := Problem{Origin: f.origin, Reason: "Unreachable", Message: err.Error()}
		if delivered {
			p.KeptLastGood = true
			p.Message += "; the last good set stays in force"
		}
		return f.held.set(p), delivered
	}
	if f.accepted == nil || !bytes.Equal(body, f.accepted) {
		now := parse(HTTPName, f.origin, body)
		f.held.replace(f.origin, now)
		f.accepted = nil
		if len(now.problems) == 0 {
			f.accepted = body
		}
	} else {
		return f.held.set(), true
	}
	// A first answer that holds nothing one can use, with nothing to fall back
	// on, says nothing about which pods are wanted.
	o := f.held.origin(f.origin)
	return f.held.set(), delivered || !o.unknown || len(o.items) > 0
}

func (f *fetcher) fetch(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", f.origin, err)
	}
	for name, values := range f.header {
		request.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host // net/http takes it from here alone
	}
	response, err := f.client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // it would name method and URL once more
	}
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", f.origin, err)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, bytesMax+1))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", f.origin, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot fetch %s: the server answered %s", f.origin, response.Status)
	}
	if len(body) > bytesMax {
		return nil, fmt.Errorf("cannot fetch %s: the body is larger than %d bytes", f.origin, bytesMax)
	}
	return body, nil
}
