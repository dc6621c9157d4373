package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Health is what the PLEG knows about itself.
type Health struct {
	// Looped is when Run last went round, which it does every few seconds, also
	// while the runtime does not answer; zero before it runs.
	Looped time.Time
	// Relisted is when the newest successful relist started; zero for never.
	Relisted time.Time
	// Stream reports whether the runtime's event stream stands.
	Stream bool
	// Err is why the newest relist failed, nil when it succeeded.
	Err error
	// Slow is the pod that has been inspected in vain for longest, in one go or in
	// several that took too long, and since when; empty when there is none.
	Slow      types.UID
	SlowSince time.Time
}

// health is shared between Run and whoever asks.
type health struct {
	mu       sync.Mutex // guards the fields below for a few lines at a time
	looped   time.Time
	relist   time.Time
	stream   bool
	err      error
	inFlight map[types.UID]time.Time
}

func (h *health) loop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looped = time.Now()
}

// relisted notes a relist and returns how long after the last good one it began.
func (h *health) relisted(r listing) (interval time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.relist.IsZero() {
		interval = r.started.Sub(h.relist)
	}
	h.err = r.err
	if r.err == nil {
		h.relist = r.started
	}
	return interval
}

func (h *health) setStream(up bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stream = up
}

func (h *health) begin(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, again := h.inFlight[uid]; !again {
		h.inFlight[uid] = time.Now()
	}
}

// end notes the end of an inspection. One that took too long is going to be
// repeated and counts from its first try.
func (h *health) end(uid types.UID, err error) {
	if pod.ClassOf(err) == pod.ClassDeadline || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inFlight, uid)
}

// Health returns the current state.
func (p *PLEG) Health() Health {
	h := &p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	out := Health{Looped: h.looped, Relisted: h.relist, Stream: h.stream, Err: h.err}
	for uid, since := range h.inFlight {
		if out.Slow == "" || since.Before(out.SlowSince) {
			out.Slow, out.SlowSince = uid, since
		}
	}
	return out
}

// Check returns an error when the PLEG cannot be relied on: no relist has
// succeeded yet, or none for too long (PL-9).
func (p *PLEG) Check(now time.Time) error {
	h := p.Health()
	slow := ""
	if h.Slow != "" {
		slow = fmt.Sprintf("; the inspection of pod %s has been running for %s", h.Slow, now.Sub(h.SlowSince).Round(time.Second))
	}
	switch {
	case h.Relisted.IsZero() && h.Err != nil:
		return fmt.Errorf("pleg has not listed the pods yet: %w%s", h.Err, slow)
	case h.Relisted.IsZero():
		return fmt.Errorf("pleg has not listed the pods yet%s", slow)
	case now.Sub(h.Relisted) > p.o.Stale:
		return fmt.Errorf("pleg was last seen active %s ago, the threshold is %s%s", now.Sub(h.Relisted).Round(time.Second), p.o.Stale, slow)
	}
	return nil
}
