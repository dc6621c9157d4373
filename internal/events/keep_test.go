package events

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// memory is a Keeper that can be full.
type memory struct {
	mu     sync.Mutex // guards the rest
	events map[string][]byte
	full   bool
	saves  int
}

func newMemory() *memory { return &memory{events: map[string][]byte{}} }

func (m *memory) LoadEvents() (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.events), nil
}

func (m *memory) SaveEvents(put map[string][]byte, drop []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errors.New("no space left on device")
	}
	m.saves++
	for _, key := range drop {
		delete(m.events, key)
	}
	maps.Copy(m.events, put)
	return nil
}

func (m *memory) setFull(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.events)
}

// running returns a log over what is kept that saves itself until stop.
func running(t *testing.T, k Keeper) (l *Log, stop func()) {
	t.Helper()
	l = NewLog("nodelet", "edge")
	require.NoError(t, l.Load(k))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, k) }()
	return l, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// TestKept: events survive the agent, with their counts, and are counted on.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMemory()
		l, stop := running(t, k)
		l.Add(named("a"), corev1.EventTypeWarning, "BackOff", "again")
		l.Add(named("a"), corev1.EventTypeWarning, "BackOff", "again")
		for i := range maxSimilar + 5 {
			l.Add(named("b"), corev1.EventTypeWarning, "Failed", string(rune('a'+i)))
		}
		stop()
		before := l.List()

		l, stop = running(t, k)
		require.Equal(t, before, l.List())
		l.Add(named("a"), corev1.EventTypeWarning, "BackOff", "again")
		l.Add(named("b"), corev1.EventTypeWarning, "Failed", "z")
		after := l.List()
		require.Len(t, after, len(before))
		require.Equal(t, int32(3), after[len(after)-2].Count)
		require.Equal(t, int32(6), after[len(after)-1].Count, "combined ones go on as one")
		require.Greater(t, revisionOf(&after[len(after)-1]), revisionOf(&before[len(before)-1]))
		stop()
	})
}

// TestSavedSoon: a crash loses a second at most, and a burst is few writes.
func TestSavedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMemory()
		l, stop := running(t, k)
		defer stop()
		for range 30 {
			l.Add(named("a"), corev1.EventTypeWarning, "BackOff", "again")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(saveEvery)
		synctest.Wait()
		again := NewLog("nodelet", "edge")
		require.NoError(t, again.Load(k))
		require.Equal(t, int32(30), again.List()[0].Count)
		k.mu.Lock()
		defer k.mu.Unlock()
		require.LessOrEqual(t, k.saves, 5)
	})
}

// TestFullDisk: what cannot be saved is saved later, and what went meanwhile is
// not.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMemory()
		l, stop := running(t, k)
		l.Add(named("old"), corev1.EventTypeNormal, "Started", "x")
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, k.len())
		k.setFull(true)
		l.Add(named("brief"), corev1.EventTypeNormal, "Started", "x")
		time.Sleep(maxAge + pruneEvery)
		synctest.Wait()
		require.Equal(t, 1, waiting(l), "only that the saved one is to be forgotten")
		l.Add(named("new"), corev1.EventTypeNormal, "Started", "x")
		k.setFull(false)
		time.Sleep(2 * retryAfter)
		require.Equal(t, 1, k.len())
		stop()
		again := NewLog("nodelet", "edge")
		require.NoError(t, again.Load(k))
		require.Equal(t, "new", again.List()[0].InvolvedObject.Name)
	})
}

// TestDamage: an event that cannot be read costs itself alone.
func TestDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMemory()
		l, stop := running(t, k)
		l.Add(named("a"), corev1.EventTypeNormal, "Started", "x")
		stop()
		k.events["shop/broken"] = []byte("{")
		again := NewLog("nodelet", "edge")
		require.ErrorContains(t, again.Load(k), "cannot read event shop/broken")
		require.Len(t, again.List(), 1)
		require.True(t, again.save(k))
		require.Equal(t, 1, k.len(), "it is gone")
	})
}

// waiting returns how many changes wait to be saved.
func waiting(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsaved)
}
