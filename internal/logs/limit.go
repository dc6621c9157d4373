package logs

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of repetition.
const (
	window    = time.Minute
	perWindow = 3    // lines of one kind that are written in a window
	kinds     = 1000 // that are known at one time
	// limitedTo is the most verbose level that is limited: whoever asks for more
	// wants to see each step.
	limitedTo = slog.Level(-1)
)

// limiter is a handler that writes the same line three times a minute at most.
// What it holds back it tells at the end of that minute in one line, with the
// newest fields. Lines are the same if they have the same severity, message and
// fields, whatever the numbers, durations and times among the fields, and the
// digits of an error.
type limiter struct {
	next   slog.Handler
	prefix string // of the kind: what WithAttrs and WithGroup gave
	*repeats
}

// repeats is what the handlers of one limiter share.
type repeats struct {
	wake   chan struct{} // one token: a line was held back
	ending chan struct{}
	ended  chan struct{}

	mu      sync.Mutex // guards the fields below for a few lines at a time
	kinds   map[string]*list.Element
	order   *list.List // of *kind, the newest use first
	stopped bool
}

// kind is one kind of line.
type kind struct {
	key     string
	until   time.Time // end of its window
	written int
	held    int
	newest  slog.Record // of those held
	next    slog.Handler
}

func newLimiter(ctx context.Context, next slog.Handler) *limiter {
	r := &repeats{
		wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{}),
		kinds: map[string]*list.Element{}, order: list.New(),
	}
	go r.run(ctx)
	return &limiter{next: next, repeats: r}
}

func (l *limiter) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

func (l *limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	var prefix strings.Builder
	for _, a := range attrs {
		fingerprint(&prefix, a)
	}
	return &limiter{next: l.next.WithAttrs(attrs), prefix: l.prefix + prefix.String(), repeats: l.repeats}
}

func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{next: l.next.WithGroup(name), prefix: l.prefix + name + "{", repeats: l.repeats}
}

func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < limitedTo {
		return l.next.Handle(ctx, r)
	}
	write, evicted := l.count(l.kindOf(r), r, l.next)
	if evicted != nil {
		evicted.tell(ctx)
	}
	if !write {
		return nil
	}
	return l.next.Handle(ctx, r)
}

func (l *limiter) kindOf(r slog.Record) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%d %q%s", r.Level, r.Message, l.prefix)
	r.Attrs(func(a slog.Attr) bool {
		fingerprint(&key, a)
		return true
	})
	return key.String()
}

// fingerprint writes what counts of a field.
func fingerprint(key *strings.Builder, a slog.Attr) {
	v := a.Value.Resolve()
	if slices.Contains([]slog.Kind{slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime}, v.Kind()) {
		return
	}
	text := v.String()
	if a.Key == "err" {
		text = withoutDigits(text)
	}
	fmt.Fprintf(key, " %s=%q", a.Key, text)
}

// withoutDigits makes errors the same that differ in a count, a time or a port.
func withoutDigits(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
}

// count decides about a line. A kind that is forgotten to make room is returned
// if it held something back.
func (r *repeats) count(key string, record slog.Record, next slog.Handler) (write bool, evicted *kind) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return true, nil
	}
	e := r.kinds[key]
	if e == nil {
		e = r.order.PushFront(&kind{key: key, until: now.Add(window)})
		r.kinds[key] = e
		evicted = r.evict()
	}
	r.order.MoveToFront(e)
	k := kindIn(e)
	if k.held == 0 && !now.Before(k.until) {
		k.until, k.written = now.Add(window), 0
	}
	if k.written < perWindow {
		k.written++
		return true, evicted
	}
	k.held++
	k.newest, k.next = record.Clone(), next
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return false, evicted
}

// evict forgets the kind that was not used for longest, if there are too many.
func (r *repeats) evict() *kind {
	if r.order.Len() <= kinds {
		return nil
	}
	k := kindIn(r.order.Back())
	r.order.Remove(r.order.Back())
	delete(r.kinds, k.key)
	if k.held == 0 {
		return nil
	}
	return k
}

func kindIn(e *list.Element) *kind {
	k, ok := e.Value.(*kind)
	if !ok {
		panic("the list of a limiter holds something else")
	}
	return k
}

// run tells at the end of each window what was held back in it. It sleeps while
// nothing is.
func (r *repeats) run(ctx context.Context) {
	defer close(r.ended)
	timer := time.NewTimer(window)
	timer.Stop()
	for {
		select {
		case <-r.ending:
			return
		case <-r.wake:
		case <-timer.C:
		}
		due, next := r.take(time.Now())
		tellAll(ctx, due)
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// take forgets the kinds whose window has ended with something held back and
// returns them, and when the next one ends.
func (r *repeats) take(now time.Time) (due []*kind, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Back(); e != nil; {
		k, previous := kindIn(e), e.Prev()
		switch {
		case k.held == 0:
		case !now.Before(k.until):
			r.order.Remove(e)
			delete(r.kinds, k.key)
			due = append(due, k)
		case next.IsZero() || k.until.Before(next):
			next = k.until
		}
		e = previous
	}
	return due, next
}

// stop ends the limiting and tells what is held back.
func (r *repeats) stop(ctx context.Context) {
	r.mu.Lock()
	first := !r.stopped
	r.stopped = true
	r.mu.Unlock()
	if first {
		close(r.ending)
	}
	<-r.ended
	rest, _ := r.take(time.Now().Add(window))
	tellAll(ctx, rest)
}

func tellAll(ctx context.Context, list []*kind) {
	for _, k := range list {
		k.tell(ctx)
	}
}

// tell writes the one line for those held back. It has the time of the newest.
func (k *kind) tell(ctx context.Context) {
	line := slog.NewRecord(k.newest.Time, k.newest.Level, fmt.Sprintf("%s (repeated %d times in the last minute)", k.newest.Message, k.held), k.newest.PC)
	line.AddAttrs(attrsOf(k.newest)...)
	_ = k.next.Handle(ctx, line) // a log that cannot be written has nobody to be told to
}
