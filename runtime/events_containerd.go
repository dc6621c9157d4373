package runtime

import (
	"context"
	"fmt"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/convert"
)

// criNamespace is where containerd keeps what CRI made.
const criNamespace = "k8s.io"

// containerd publishes an event before its CRI plugin has taken note of it, so
// a hint at once would be about a state that a listing does not show yet. Each
// hint therefore waits until CRI shows the new state, for a bounded time. An end
// takes some tens of milliseconds, which a restart should not wait for in vain, so
// the pauses grow with the time that has passed and cost a part of it only.
const (
	maxSettling    = 32
	settlePauseMin = 2 * time.Millisecond
	settlePart     = 5
	settleTimeout  = 2 * time.Second
)

// followContainerd follows containerd's own event service on the CRI socket, for
// versions whose CRI has no events (1.6). Creations are left out: they come long
// before CRI shows what was created, and the start that follows tells as much.
func (c *Client) followContainerd(ctx context.Context, queue *hintQueue) error {
	target, options := c.o.RuntimeEndpoint, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if c.o.Dialer != nil {
		target, options = "passthrough:///"+target, append(options, grpc.WithContextDialer(c.o.Dialer))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return fmt.Errorf("cannot dial %s: %w", c.o.RuntimeEndpoint, err)
	}
	defer conn.Close() //nolint:errcheck // it can only be closed already
	stream, err := eventsapi.NewEventsClient(conn).Subscribe(
		metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace),
		&eventsapi.SubscribeRequest{Filters: []string{
			"namespace==" + criNamespace + `,topic~="^/tasks/(start|exit|oom)$"`,
			"namespace==" + criNamespace + `,topic=="/containers/delete"`,
		}})
	if err != nil {
		return err
	}
	c.eventSource.Store(EventsContainerd)
	settling, sctx := errgroup.WithContext(ctx)
	settling.SetLimit(maxSettling)
	for {
		envelope, err := stream.Recv()
		if err != nil {
			// What settles now ends within its own bound.
			_ = settling.Wait()
			return err
		}
		hint, ok := containerdHint(envelope)
		if !ok {
			continue
		}
		if !settling.TryGo(func() error { c.settle(sctx, hint, queue); return nil }) {
			hint.UID = c.cache.owner(hint.ID)
			queue.push(hint)
		}
	}
}

// containerdHint reads an event. The end of an exec, which carries an ID of its
// own, is not the end of its container.
func containerdHint(envelope *apitypes.Envelope) (Hint, bool) {
	var hint Hint
	var err error
	text := envelope.GetEvent().GetValue()
	switch envelope.GetTopic() {
	case "/tasks/start":
		event := &apievents.TaskStart{}
		err = proto.Unmarshal(text, event)
		hint = Hint{ID: event.GetContainerID(), What: HintStarted}
	case "/tasks/exit":
		event := &apievents.TaskExit{}
		err = proto.Unmarshal(text, event)
		if event.GetID() == event.GetContainerID() {
			hint = Hint{ID: event.GetContainerID(), What: HintStopped}
		}
	case "/tasks/oom":
		event := &apievents.TaskOOM{}
		err = proto.Unmarshal(text, event)
		hint = Hint{ID: event.GetContainerID(), What: HintOOM}
	case "/containers/delete":
		event := &apievents.ContainerDelete{}
		err = proto.Unmarshal(text, event)
		hint = Hint{ID: event.GetID(), What: HintDeleted}
	}
	if err != nil || hint.ID == "" {
		return Hint{}, false
	}
	return hint, true
}

// settle pushes a hint once CRI shows what it is about, or when that takes too
// long: then the hint may come to nothing, and the next full listing helps.
func (c *Client) settle(ctx context.Context, hint Hint, queue *hintQueue) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for began := time.Now(); ; {
		if hint.What == HintStarted && c.cache.running(hint.ID) {
			break // our own start, and whoever started it has looked
		}
		view := c.view(ctx, hint.ID)
		if view.foreign {
			return
		}
		if view.shows(hint.What) {
			break
		}
		timer := time.NewTimer(max(time.Since(began)/settlePart, settlePauseMin))
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			timer.Stop()
		}
		break
	}
	hint.UID = c.cache.owner(hint.ID)
	queue.push(hint)
}

// criView is what CRI shows of a container or sandbox.
type criView struct {
	known   bool // false when the runtime could not be asked
	exists  bool
	running bool
	ended   bool
	foreign bool
}

// shows reports whether the view is one after the event.
func (v criView) shows(what string) bool {
	switch what {
	case HintStarted:
		return v.running || v.ended
	case HintStopped:
		return v.ended || v.known && !v.exists
	case HintDeleted:
		return v.known && !v.exists
	}
	return true
}

func (c *Client) view(ctx context.Context, id string) criView {
	container, err := c.containerStatus(ctx, id)
	if err == nil {
		v := criView{known: true, exists: true}
		v.running = container.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		v.ended = container.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		v.foreign = !c.noteOwner(id, container.GetLabels())
		return v
	}
	if !isNotFound(err) {
		return criView{}
	}
	sandbox, err := c.sandboxStatus(ctx, id)
	if err != nil {
		return criView{known: isNotFound(err)}
	}
	v := criView{known: true, exists: true}
	v.running = sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	v.ended = !v.running
	v.foreign = !c.noteOwner(id, sandbox.GetLabels())
	return v
}

func (c *Client) noteOwner(id string, labels map[string]string) bool {
	uid, ours := convert.Owned(labels)
	if ours {
		c.cache.setOwner(id, uid)
	}
	return ours
}
