package pleg

import (
	"sync"
	"time"

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

	mu      sync.Mutex // guards the fields below for a few lines at a time
	set     map[types.UID]Change
	listing *Listed
}

// Listed says which pods the runtime listed, and when that began. A worker whose
// pod is not among them may have seen it come and go unnoticed by the PLEG.
type Listed struct {
	TakenAt time.Time
	UIDs    map[types.UID]bool
}

func newChanges() *Changes {
	return &Changes{wake: make(chan struct{}, 1), set: map[types.UID]Change{}}
}

// Wait returns the channel that has a token when there is something to take.
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

// TakeListed returns the newest listing that was not taken yet, or nil.
func (c *Changes) TakeListed() *Listed {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.listing
	c.listing = nil
	return out
}

func (c *Changes) putListed(l Listed) {
	c.mu.Lock()
	c.listing = &l
	c.mu.Unlock()
	c.signal()
}

func (c *Changes) put(change Change) {
	c.mu.Lock()
	if old, ok := c.set[change.UID]; ok {
		change.Events = append(old.Events, change.Events...)
	}
	c.set[change.UID] = change
	c.mu.Unlock()
	c.signal()
}

func (c *Changes) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
