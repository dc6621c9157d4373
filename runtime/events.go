package runtime

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// Where hints come from.
const (
	EventsCRI        = "cri"        // GetContainerEvents
	EventsContainerd = "containerd" // containerd's own event service
	EventsNone       = "none"       // nothing is followed now
)

// Events follows the runtime's events and sends a hint for each, until ctx ends
// or the stream breaks; it always returns an error that says which. Events are
// lost when a stream breaks, when one begins, and in some runtimes also in
// between, so whoever follows them lists everything after each start and now
// and then. What happens to other agents' pods gives no hint where the runtime
// says whose pod it is.
func (c *Client) Events(ctx context.Context, out chan<- Hint) error {
	conn := c.conn.Load()
	if conn == nil {
		return c.notConnected()
	}
	streamCtx, cancel := context.WithCancel(ctx)
	queue := newHintQueue()
	var forwarder sync.WaitGroup
	forwarder.Go(func() { queue.forward(streamCtx, out) })
	defer func() {
		c.eventSource.Store(EventsNone)
		cancel()
		forwarder.Wait()
	}()
	c.eventSource.Store(EventsCRI)
	err := c.followCRI(streamCtx, conn, queue)
	if status.Code(err) == codes.Unimplemented {
		err = c.followContainerd(streamCtx, queue)
	}
	if ctx.Err() != nil {
		return failed(ctx.Err(), "", "follow events of the container runtime")
	}
	if errors.Is(err, io.EOF) {
		return pod.Errorf(pod.ClassUnavailable, "", "cannot follow events of the container runtime: it ended the stream")
	}
	return failed(err, "", "follow events of the container runtime")
}

// followCRI follows GetContainerEvents. The library sends to the channel
// without looking at ctx, so the channel is drained until the call returned.
func (c *Client) followCRI(ctx context.Context, conn *connection, queue *hintQueue) error {
	events := make(chan *runtimeapi.ContainerEventResponse, maxHints)
	var err error
	var stream sync.WaitGroup
	stream.Go(func() {
		err = conn.runtime.GetContainerEvents(quiet(ctx), events, nil)
		close(events)
	})
	for event := range events {
		if hint, ok := c.criHint(event); ok {
			queue.push(hint)
		}
	}
	stream.Wait()
	return err
}

func (c *Client) criHint(event *runtimeapi.ContainerEventResponse) (Hint, bool) {
	hint := Hint{ID: event.GetContainerId()}
	switch event.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		hint.What = HintCreated
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		hint.What = HintStarted
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		hint.What = HintStopped
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		hint.What = HintDeleted
	}
	if sandbox := event.GetPodSandboxStatus(); sandbox != nil {
		uid, ours := convert.Owned(sandbox.GetLabels())
		hint.UID = uid
		return hint, ours
	}
	hint.UID = c.cache.owner(hint.ID)
	return hint, true
}
