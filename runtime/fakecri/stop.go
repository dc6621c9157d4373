package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	killedCode     = 137
	terminatedCode = 143
	startErrorCode = 128
)

// StopContainer implements CRI: TERM, then KILL when the timeout has passed. If the caller gives up in between, the
// container has had its TERM and goes on.
func (s *Server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s.mu.Lock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		s.mu.Unlock()
		if s.options.Flavor == Containerd16 {
			return nil, err
		}
		return &runtimeapi.StopContainerResponse{}, nil
	}
	p := c.process
	if p != nil && r.GetTimeout() > 0 {
		p.terminate()
	}
	s.mu.Unlock()
	if p == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if r.GetTimeout() > 0 {
		timer := time.NewTimer(time.Duration(r.GetTimeout()) * time.Second)
		defer timer.Stop()
		select {
		case <-p.exited:
			return &runtimeapi.StopContainerResponse{}, nil
		case <-timer.C:
		case <-ctx.Done():
			return nil, contextError(ctx)
		case <-s.closed:
			return nil, status.Error(codes.Unavailable, "the fake runtime is closed")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.process == p {
		s.endLocked(c, killedCode, "")
	}
	return &runtimeapi.StopContainerResponse{}, nil
}
