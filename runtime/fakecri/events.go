package fakecri

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// backlogAge is how long containerd 2 keeps events while nobody listens; the next listener gets them all at once.
	backlogAge  = 5 * time.Minute
	backlogSize = 1000
)

// eventQueue is guarded by Server.mu.
type eventQueue struct {
	subscribers []*subscriber
	backlog     []*runtimeapi.ContainerEventResponse
}

// subscriber is one open stream. Its queue is guarded by Server.mu; wake holds one token.
type subscriber struct {
	queue []*runtimeapi.ContainerEventResponse
	wake  chan struct{}
}

// GetContainerEvents implements CRI: every stream gets every event.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if s.options.NoEvents || s.options.Flavor == Containerd16 {
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	index, fault := s.begin("GetContainerEvents", nil)
	_, err := s.withFault(stream.Context(), fault, nil, func(context.Context, any) (any, error) { return nil, s.stream(stream) })
	s.finish(index, nil, err)
	return err
}

func (s *Server) stream(stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	sub := &subscriber{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	oldest := time.Now().Add(-backlogAge).UnixNano()
	for _, event := range s.events.backlog {
		if event.GetCreatedAt() >= oldest {
			sub.queue = append(sub.queue, event)
		}
	}
	s.events.backlog = nil
	s.events.subscribers = append(s.events.subscribers, sub)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events.subscribers = slices.DeleteFunc(s.events.subscribers, func(other *subscriber) bool { return other == sub })
	}()
	for {
		s.mu.Lock()
		queue := sub.queue
		sub.queue = nil
		s.mu.Unlock()
		for _, event := range queue {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		if len(queue) > 0 {
			continue
		}
		select {
		case <-sub.wake:
		case <-stream.Context().Done():
			return contextError(stream.Context())
		case <-s.closed:
			return status.Error(codes.Unavailable, "the fake runtime is closed")
		}
	}
}

// publishLocked sends what happened to a container, or to a sandbox when id is the sandbox's own.
func (s *Server) publishLocked(b *sandbox, id string, kind runtimeapi.ContainerEventType) {
	call := Call{RPC: eventCall, ID: id, Began: time.Now(), Request: kind}
	call.ofPod(b.config.GetMetadata())
	if c, found := s.containers[id]; found {
		s.ofContainerLocked(&call, c)
	}
	if s.strikeLocked(call) != nil {
		return
	}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          s.nowLocked(),
		PodSandboxStatus:   b.status(),
	}
	for _, c := range s.matchingLocked(&runtimeapi.ContainerFilter{PodSandboxId: b.id}) {
		event.ContainersStatuses = append(event.ContainersStatuses, s.statusLocked(c))
	}
	if len(s.events.subscribers) == 0 {
		s.events.backlog = append(s.events.backlog, event)
		if len(s.events.backlog) > backlogSize {
			s.events.backlog = s.events.backlog[1:]
		}
		return
	}
	for _, sub := range s.events.subscribers {
		sub.queue = append(sub.queue, event)
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}
