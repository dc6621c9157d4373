package fakecri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox implements CRI.
func (s *Server) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	if r.GetConfig().GetMetadata() == nil {
		return nil, status.Error(codes.Unknown, "cannot run a sandbox: its config has no metadata")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready.network && !(&sandbox{config: r.GetConfig()}).hostNetwork() {
		return nil, status.Error(codes.Unknown, "cannot set up the sandbox's network: network is not ready")
	}
	b := &sandbox{
		id:      s.newIDLocked(sandboxKind),
		name:    sandboxName(r.GetConfig().GetMetadata()),
		config:  proto.CloneOf(r.GetConfig()),
		handler: r.GetRuntimeHandler(),
		ready:   true,
	}
	if err := s.reserveLocked(sandboxKind, b.name, b.id); err != nil {
		return nil, err
	}
	b.createdAt = s.nowLocked()
	if !b.hostNetwork() {
		b.ip = s.newAddressLocked()
	}
	s.sandboxes[b.id] = b
	s.publishLocked(b, b.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.publishLocked(b, b.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: b.id}, nil
}

// StopPodSandbox implements CRI.
func (s *Server) StopPodSandbox(_ context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(r.GetPodSandboxId())
	switch {
	case err == nil:
		s.stopSandboxLocked(b)
	case s.options.Flavor == Containerd16:
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopSandboxLocked(b *sandbox) {
	for _, c := range s.containers {
		if c.sandboxID == b.id && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			s.endLocked(c, killedCode, "")
		}
	}
	if b.ready {
		b.ready, b.ip = false, ""
		s.publishLocked(b, b.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemovePodSandbox implements CRI.
func (s *Server) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(r.GetPodSandboxId())
	if err != nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	s.stopSandboxLocked(b)
	for _, c := range s.containers {
		if c.sandboxID == b.id {
			s.removeContainerLocked(c)
		}
	}
	// The event still finds the sandbox, as containerd's does.
	s.publishLocked(b, b.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	delete(s.sandboxes, b.id)
	s.releaseLocked(sandboxKind, b.name)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus implements CRI.
func (s *Server) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	answer := &runtimeapi.PodSandboxStatusResponse{Status: b.status(), Timestamp: s.nowLocked()}
	if r.GetVerbose() {
		answer.Info = map[string]string{"info": "{}"}
	}
	return answer, nil
}

func (b *sandbox) state() runtimeapi.PodSandboxState {
	if b.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (b *sandbox) status() *runtimeapi.PodSandboxStatus {
	options := b.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options == nil {
		options = &runtimeapi.NamespaceOption{}
	}
	return &runtimeapi.PodSandboxStatus{
		Id:             b.id,
		Metadata:       proto.CloneOf(b.config.GetMetadata()),
		State:          b.state(),
		CreatedAt:      b.createdAt,
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: b.ip},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: proto.CloneOf(options)}},
		Labels:         b.config.GetLabels(),
		Annotations:    b.config.GetAnnotations(),
		RuntimeHandler: b.handler,
	}
}

// ListPodSandbox implements CRI.
func (s *Server) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := r.GetFilter()
	s.mu.Lock()
	defer s.mu.Unlock()
	id := filter.GetId()
	if b, err := s.findSandboxLocked(id); err == nil {
		id = b.id
	}
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, b := range sorted(s.sandboxes, func(b *sandbox) int64 { return b.createdAt }) {
		if id != "" && id != b.id || filter.GetState() != nil && filter.GetState().GetState() != b.state() ||
			!selected(b.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
			Id:             b.id,
			Metadata:       proto.CloneOf(b.config.GetMetadata()),
			State:          b.state(),
			CreatedAt:      b.createdAt,
			Labels:         b.config.GetLabels(),
			Annotations:    b.config.GetAnnotations(),
			RuntimeHandler: b.handler,
		})
	}
	return answer, nil
}

// UpdatePodSandboxResources implements CRI: it only checks that the sandbox exists, as containerd 2.4 without plug-ins.
func (s *Server) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if s.options.Flavor == Containerd16 {
		return nil, status.Error(codes.Unimplemented, "unknown method UpdatePodSandboxResources")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.findSandboxLocked(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
