package logs

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bubble is a limiter in a synctest bubble.
type bubble struct {
	t     *testing.T
	l     *limiter
	lines func() []string // written since the last call
}

// limited runs a test in a bubble over a limiter that writes into a buffer.
func limited(t *testing.T, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		out := &plain{}
		l := newLimiter(t.Context(), &lines{writer: out})
		defer l.stop(t.Context())
		test(&bubble{t: t, l: l, lines: func() []string {
			synctest.Wait()
			return out.take()
		}})
	})
}

// plain keeps lines.
type plain struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (p *plain) write(_ slog.Record, _ []slog.Attr, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, text)
	return nil
}

func (p *plain) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// TestRepeats: three lines a minute, then one that says how many more there were,
// with the newest fields. What is volatile makes no difference.
func TestRepeats(t *testing.T) {
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		for i := range 60 {
			err := fmt.Errorf("port %d is taken", i)
			handle(t, l, slog.LevelError, "Cannot listen", "err", err, "retry", time.Duration(i)*time.Second, "count", i, "pod", "a/b")
			handle(t, l, slog.LevelError, "Cannot listen", "err", err, "pod", "a/other"+strings.Repeat("x", i))
			time.Sleep(500 * time.Millisecond)
		}
		got := lines()
		require.Len(t, got, 3+60)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{`Cannot listen (repeated 57 times in the last minute) err="port 59 is taken" retry="59s" count=59 pod="a/b"`}, lines())
		time.Sleep(time.Hour)
		require.Empty(t, lines())
		handle(t, l, slog.LevelError, "Cannot listen", "err", errors.New("port 1 is taken"), "retry", time.Second, "count", 1, "pod", "a/b")
		require.Len(t, lines(), 1, "a new minute")
	})
}

// TestNotTheSame: another severity, message, error or logger is another line.
func TestNotTheSame(t *testing.T) {
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		for range 3 {
			handle(t, l, slog.LevelError, "x", "err", errors.New("disk full"))
			handle(t, l, slog.LevelError, "x", "err", errors.New("denied"))
			handle(t, l, slog.LevelInfo, "x", "err", errors.New("disk full"))
			handle(t, l, slog.LevelError, "y", "err", errors.New("disk full"))
			handle(t, l.WithAttrs([]slog.Attr{slog.String("pod", "a")}), slog.LevelError, "x", "err", errors.New("disk full"))
			handle(t, l.WithGroup("g"), slog.LevelError, "x", "err", errors.New("disk full"))
		}
		require.Len(t, lines(), 18)
	})
}

// TestSteady: a line that comes every second is told of every minute, and never
// silenced for longer.
func TestSteady(t *testing.T) {
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		last := time.Now()
		var longest time.Duration
		total := 0
		for range 600 {
			handle(t, l, slog.LevelError, "again", "err", errors.New("no"))
			if n := len(lines()); n > 0 {
				longest, last, total = max(longest, time.Since(last)), time.Now(), total+n
			}
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, longest, time.Minute)
		require.LessOrEqual(t, total, 45)
		require.GreaterOrEqual(t, total, 36)
	})
}

// TestDebugIsNotLimited: whoever asks for each step gets it.
func TestDebugIsNotLimited(t *testing.T) {
	require.NoError(t, SetVerbosity(2))
	defer func() { require.NoError(t, SetVerbosity(0)) }()
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		for range 10 {
			handle(t, l, -2, "step")
			handle(t, l, -1, "detail")
		}
		require.Len(t, lines(), 10+3)
	})
}

// TestBounded: however many kinds of lines there are, few are remembered, and
// none is forgotten without what it held back being told.
func TestBounded(t *testing.T) {
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		for range 5 {
			handle(t, l, slog.LevelInfo, "first")
		}
		require.Len(t, lines(), 3)
		for i := range 3 * kinds {
			handle(t, l, slog.LevelInfo, "other", "name", fmt.Sprint("n", i))
		}
		require.Contains(t, lines(), "first (repeated 2 times in the last minute)")
		require.LessOrEqual(t, len(l.kinds), kinds)
		require.Equal(t, len(l.kinds), l.order.Len())
	})
}

// TestStop tells what is held back at the end.
func TestStop(t *testing.T) {
	limited(t, func(b *bubble) {
		t, l, lines := b.t, b.l, b.lines
		for range 5 {
			handle(t, l, slog.LevelError, "last words")
		}
		l.stop(t.Context())
		require.Equal(t, "last words (repeated 2 times in the last minute)", lines()[3])
		handle(t, l, slog.LevelError, "last words")
		require.Len(t, lines(), 1, "after the end nothing is held back")
	})
}
