package fakecri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readiness is guarded by Server.mu.
type readiness struct {
	runtime, network bool
	message          string
}

// SetReady changes what Status reports. While the network is not ready, sandboxes with a network of their own fail.
func (s *Server) SetReady(runtime, network bool, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = readiness{runtime: runtime, network: network, message: message}
}

// Version implements CRI. The name is containerd's, since agents choose features by it.
func (s *Server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	version := "2.4.2+fakecri"
	if s.options.Flavor == Containerd16 {
		version = "1.6.20~fakecri"
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: version, RuntimeApiVersion: "v1"}, nil
}

// Status implements CRI.
func (s *Server) Status(_ context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	condition := func(kind string, ready bool) *runtimeapi.RuntimeCondition {
		c := &runtimeapi.RuntimeCondition{Type: kind, Status: ready}
		if !ready {
			c.Reason, c.Message = kind[:len(kind)-len("Ready")]+"NotReady", s.ready.message
		}
		return c
	}
	answer := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		condition(runtimeapi.RuntimeReady, s.ready.runtime),
		condition(runtimeapi.NetworkReady, s.ready.network),
	}}}
	if s.options.Flavor == Containerd24 {
		answer.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{}}}
		answer.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	}
	if r.GetVerbose() {
		answer.Info = map[string]string{"config": "{}"}
	}
	return answer, nil
}

// RuntimeConfig implements CRI.
func (s *Server) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if s.options.Flavor == Containerd16 {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig implements CRI; containerd too only uses it for its own network template.
func (s *Server) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// ReopenContainerLog implements CRI.
func (s *Server) ReopenContainerLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	s.mu.Lock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	p, path := c.process, c.logPath
	s.mu.Unlock()
	if p == nil {
		return nil, status.Errorf(codes.Unknown, "cannot reopen the log of container %q: it is not running", r.GetContainerId())
	}
	if s.options.LogFiles && path != "" {
		if err := p.log.open(path); err != nil {
			return nil, status.Errorf(codes.Unknown, "cannot reopen the log of container %q: %v", r.GetContainerId(), err)
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
