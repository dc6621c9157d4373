package runtime

import (
	"context"
	"sync"

	"nodelet.dev/nodelet/internal/pod"
)

// pullKey is what makes two pulls one: the image and the credentials.
type pullKey struct {
	image string
	auth  Auth
}

// flight is one pull that one or more callers wait for.
type flight struct {
	key       pullKey
	done      chan struct{} // closed when image and err are set
	abandoned chan struct{} // closed when nobody waits any more
	waiters   int           // guarded by flights.mu

	first context.Context //nolint:containedctx // of the caller who came first: only its values count

	image Image
	err   error
}

// flights are the pulls that are wanted. Callers join them; Client.Run flies
// them, so that a pull does not end with the caller who happened to come first.
// golang.org/x/sync/singleflight lacks just that: its call runs on the first
// caller's context. The mutex guards the fields for a few lines.
type flights struct {
	mu     sync.Mutex
	active map[pullKey]*flight
	queue  []*flight
	wake   chan struct{} // holds one token when queue is not empty
	ended  chan struct{} // closed when nothing will be flown any more
}

func newFlights() *flights {
	return &flights{active: map[pullKey]*flight{}, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// join returns the flight for a key, which is new when there is none.
func (f *flights) join(ctx context.Context, key pullKey) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if found, ok := f.active[key]; ok {
		found.waiters++
		return found
	}
	created := &flight{key: key, done: make(chan struct{}), abandoned: make(chan struct{}), waiters: 1, first: ctx}
	f.active[key] = created
	f.queue = append(f.queue, created)
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return created
}

// leave says that one caller does not wait any more. Nobody joins a flight that
// nobody waits for: the next caller starts a new one.
func (f *flights) leave(left *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left.waiters--
	if left.waiters > 0 {
		return
	}
	if f.active[left.key] == left {
		delete(f.active, left.key)
	}
	close(left.abandoned)
}

// take returns the flights that are not begun.
func (f *flights) take() []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.queue
	f.queue = nil
	return queue
}

// land publishes the result of a flight.
func (f *flights) land(landed *flight, image Image, err error) {
	f.mu.Lock()
	if f.active[landed.key] == landed {
		delete(f.active, landed.key)
	}
	f.mu.Unlock()
	landed.image, landed.err = image, err
	close(landed.done)
}

// sharedPull waits for the pull of an image.
func (c *Client) sharedPull(ctx context.Context, key pullKey) (Image, error) {
	if c.conn.Load() == nil {
		return Image{}, c.notConnected()
	}
	f := c.pulls.join(ctx, key)
	defer c.pulls.leave(f)
	select {
	case <-f.done:
		return f.image, f.err
	case <-ctx.Done():
		return Image{}, failed(ctx.Err(), ReasonPull, "wait for the pull of image %q", key.image)
	case <-c.pulls.ended:
		return Image{}, pod.Errorf(pod.ClassCancelled, ReasonPull, "cannot pull image %q: nodelet is stopping", key.image)
	}
}

// fly runs one pull until it ends or nobody waits for it.
func (c *Client) fly(ctx context.Context, f *flight) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-f.abandoned:
			cancel()
		case <-ctx.Done():
		}
	})
	image, err := c.pull(onBehalf{ctx, f.first}, f.key)
	cancel()
	watch.Wait()
	c.pulls.land(f, image, err)
}

// onBehalf ends with one context and has the values of another too, such as the
// trace that a pull belongs to.
type onBehalf struct {
	context.Context //nolint:containedctx // it is one

	caller context.Context //nolint:containedctx // for its values
}

func (o onBehalf) Value(key any) any {
	if v := o.Context.Value(key); v != nil {
		return v
	}
	return o.caller.Value(key)
}
