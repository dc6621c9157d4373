package source

import "sync"

// nudge holds what the goroutine of Run is to take up now: the newest value wins.
// The zero value is ready.
type nudge[T any] struct {
	mu     sync.Mutex // guards the fields for a few lines at a time
	signal chan struct{}
	newest *T
}

func (n *nudge[T]) put(v T) {
	n.mu.Lock()
	n.newest = &v
	n.mu.Unlock()
	select {
	case n.wake() <- struct{}{}:
	default: // it is awake
	}
}

// wake returns the channel that holds a token while there is something to take.
func (n *nudge[T]) wake() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.signal == nil {
		n.signal = make(chan struct{}, 1)
	}
	return n.signal
}

// take returns the newest value, or the old one when there is none.
func (n *nudge[T]) take(old T) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.newest == nil {
		return old
	}
	v := *n.newest
	n.newest = nil
	return v
}
