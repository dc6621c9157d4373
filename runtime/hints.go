package runtime

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// What a Hint says. Hints are no facts: look again.
const (
	HintCreated = "created"
	HintStarted = "started"
	HintStopped = "stopped"
	HintDeleted = "deleted"
	HintOOM     = "oom"
	// HintOverflow says that hints were dropped: look at everything.
	HintOverflow = "overflow"
)

// Hint says that something happened to a container or sandbox.
type Hint struct {
	// UID is the pod; empty when it is not known.
	UID types.UID
	// ID is the container's or sandbox's.
	ID   string
	What string
}

// maxHints is how many hints wait for the reader.
const maxHints = 1024

// hintQueue stands between the runtime's stream, which must never wait (a slow
// reader blocks containerd's own publishers), and the reader. When it is full the
// oldest hint goes, and the reader is told. The mutex guards the fields for a few
// lines.
type hintQueue struct {
	mu    sync.Mutex
	hints []Hint
	lost  bool
	wake  chan struct{} // holds one token when there is something to take
}

func newHintQueue() *hintQueue { return &hintQueue{wake: make(chan struct{}, 1)} }

func (q *hintQueue) push(h Hint) {
	q.mu.Lock()
	if len(q.hints) == maxHints {
		q.hints = q.hints[1:]
		q.lost = true
	}
	q.hints = append(q.hints, h)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all hints that wait, an overflow first.
func (q *hintQueue) take() []Hint {
	q.mu.Lock()
	defer q.mu.Unlock()
	hints := q.hints
	if q.lost {
		hints = append([]Hint{{What: HintOverflow}}, hints...)
	}
	q.hints, q.lost = nil, false
	return hints
}

// forward sends hints to the reader until ctx ends.
func (q *hintQueue) forward(ctx context.Context, out chan<- Hint) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		for _, h := range q.take() {
			select {
			case <-ctx.Done():
				return
			case out <- h:
			}
		}
	}
}
