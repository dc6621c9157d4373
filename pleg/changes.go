package pleg

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Change is a pod that changed, with the newest observation of it: an empty one
// when nothing is left.
type Change struct {
	UID      types.UID
	Observed pod.Observation
	Events   []Event
}

// Changes is a set of changed pods, the newest change of each. Putting never
// blocks and loses nothing but what is out of date.
type Changes struct {
	wake chan struct{} // one token

	mu  sync.Mutex // guards set for a few lines at a time
	set map[types.UID]Change
}

func newChanges() *Changes {
	return &Changes{wake: make(chan struct{}, 1), set: map[types.UID]Change{}}
}

// Wait returns the channel that has a token when the set is not empty.
func (c *Changes) Wait() <-chan struct{} { return c.wake }

// Take empties the set.
func (c *Changes) Take() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Change, 0, len(c.set))
	for _, change := range c.set {
		out = append(out, change)
	}
	clear(c.set)
	return out
}

func (c *Changes) put(change Change) {
	c.mu.Lock()
	if old, ok := c.set[change.UID]; ok {
		change.Events = append(old.Events, change.Events...)
	}
	c.set[change.UID] = change
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
