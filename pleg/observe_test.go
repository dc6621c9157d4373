package pleg_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/pleg"
)

// TestObserve: every relist is told, with the time since the last good one.
func TestObserve(t *testing.T) {
	type relist struct{ took, interval time.Duration }
	var mu sync.Mutex // guards seen
	var seen []relist
	take := func() []relist {
		mu.Lock()
		defer mu.Unlock()
		out := seen
		seen = nil
		return out
	}
	inBubble(t, func(m *machine, o *pleg.Options) {
		m.noStream, m.listDelay = true, 500*time.Millisecond
		o.Observe = func(took, interval time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, relist{took, interval})
		}
	}, func(g generator) {
		time.Sleep(3 * time.Second)
		list := take()
		require.Equal(g, relist{took: 500 * time.Millisecond}, list[0], "there was none before")
		require.Equal(g, relist{500 * time.Millisecond, 1500 * time.Millisecond}, list[1])
		g.change(func() { g.listErr = errors.New("nobody answers") })
		time.Sleep(6 * time.Second)
		list = take()
		require.Len(g, list, 4)
		require.Equal(g, list[2].interval+1500*time.Millisecond, list[3].interval, "one that fails does not count as the last")
	})
}
