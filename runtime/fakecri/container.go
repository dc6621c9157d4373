package fakecri

import (
	"context"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer implements CRI.
func (s *Server) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	config := r.GetConfig()
	if config.GetMetadata() == nil {
		return nil, status.Error(codes.Unknown, "cannot create a container: its config has no metadata")
	}
	if user := config.GetLinux().GetSecurityContext(); user.GetRunAsGroup() != nil && user.GetRunAsUser() == nil && user.GetRunAsUsername() == "" {
		return nil, status.Error(codes.Unknown, "cannot create a container: it has a group but no user to run as")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !b.ready {
		return nil, status.Errorf(codes.Unknown, "cannot create a container: sandbox %q is not running", b.id)
	}
	id := s.newIDLocked(containerKind)
	name := containerName(config.GetMetadata(), b.config.GetMetadata())
	if err := s.reserveLocked(containerKind, name, id); err != nil {
		return nil, err
	}
	i := s.resolveImageLocked(config.GetImage().GetImage())
	if i == nil {
		s.releaseLocked(containerKind, name)
		return nil, status.Errorf(codes.NotFound, "cannot create a container: image %q is not on this machine", config.GetImage().GetImage())
	}
	c := &container{
		id:        id,
		name:      name,
		sandboxID: b.id,
		config:    proto.CloneOf(config),
		imageID:   i.id,
		state:     runtimeapi.ContainerState_CONTAINER_CREATED,
		createdAt: s.nowLocked(),
		resources: proto.CloneOf(config.GetLinux().GetResources()),
		files:     newFileSystem(),
	}
	c.files.writeResolvConf(b.config.GetDnsConfig())
	c.files.write("/etc/hostname", b.config.GetHostname()+"\n", false)
	if dir := b.config.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		c.logPath = filepath.Join(dir, config.GetLogPath())
	}
	s.containers[id] = c
	s.publishLocked(b, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer implements CRI.
func (s *Server) StartContainer(_ context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.Unknown, "cannot start container %q: it is in state %s", c.id, c.state)
	}
	b, err := s.findSandboxLocked(c.sandboxID)
	if err == nil && !b.ready {
		err = status.Errorf(codes.Unknown, "cannot start container %q: sandbox %q is not running", c.id, c.sandboxID)
	}
	if err == nil {
		err = s.launchLocked(b, c)
	}
	if err != nil {
		c.state, c.exitCode, c.reason, c.message = runtimeapi.ContainerState_CONTAINER_EXITED, startErrorCode, "StartError", err.Error()
		c.finishedAt = s.nowLocked()
		return nil, err
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *Server) launchLocked(b *sandbox, c *container) error {
	program, err := s.programLocked(c)
	if err != nil {
		return err
	}
	p, err := s.newProcessLocked(b, c)
	if err != nil {
		return err
	}
	c.state, c.startedAt, c.process = runtimeapi.ContainerState_CONTAINER_RUNNING, s.nowLocked(), p
	s.countStartLocked(s.keyLocked(c))
	s.publishLocked(b, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	s.tasks.Go(func() {
		defer p.log.close()
		code := program(p.ctx(), p)
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.process == p {
			reason := ""
			if p.oomKilled {
				reason = "OOMKilled"
			}
			s.endLocked(c, int32(code&0xff), reason)
		}
	})
	return nil
}

// endLocked is the one place where a running container becomes an exited one.
func (s *Server) endLocked(c *container, code int32, reason string) {
	key := s.keyLocked(c)
	s.journal.running[ContainerKey{UID: key.UID, Name: key.Name}]--
	c.process.kill()
	close(c.process.exited)
	c.process = nil
	c.state, c.exitCode, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, code, reason
	c.finishedAt = s.nowLocked()
	if b, found := s.sandboxes[c.sandboxID]; found {
		s.publishLocked(b, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemoveContainer implements CRI.
func (s *Server) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err := s.findContainerLocked(r.GetContainerId()); err == nil {
		s.removeContainerLocked(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *Server) removeContainerLocked(c *container) {
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		s.endLocked(c, killedCode, "")
	}
	delete(s.containers, c.id)
	s.releaseLocked(containerKind, c.name)
	if b, found := s.sandboxes[c.sandboxID]; found {
		s.publishLocked(b, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
}

// ListContainers implements CRI.
func (s *Server) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range s.matchingLocked(r.GetFilter()) {
		listed := &runtimeapi.Container{
			Id:           c.id,
			PodSandboxId: c.sandboxID,
			Metadata:     proto.CloneOf(c.config.GetMetadata()),
			Image:        proto.CloneOf(c.config.GetImage()),
			ImageRef:     c.imageID,
			State:        c.state,
			CreatedAt:    c.createdAt,
			Labels:       c.config.GetLabels(),
			Annotations:  c.config.GetAnnotations(),
		}
		if s.options.Flavor == Containerd24 {
			listed.ImageId = c.imageID
		}
		answer.Containers = append(answer.Containers, listed)
	}
	return answer, nil
}

func (s *Server) matchingLocked(filter *runtimeapi.ContainerFilter) []*container {
	id, sandboxID := filter.GetId(), filter.GetPodSandboxId()
	if c, err := s.findContainerLocked(id); err == nil {
		id = c.id
	}
	if b, err := s.findSandboxLocked(sandboxID); err == nil {
		sandboxID = b.id
	}
	// Sorted last: an event looks at one pod's containers among the thousands of a scale test.
	matching := map[string]*container{}
	for _, c := range s.containers {
		if id != "" && id != c.id || sandboxID != "" && sandboxID != c.sandboxID ||
			filter.GetState() != nil && filter.GetState().GetState() != c.state ||
			!selected(c.config.GetLabels(), filter.GetLabelSelector()) {
			continue
		}
		matching[c.id] = c
	}
	return sorted(matching, func(c *container) int64 { return c.createdAt })
}

// ContainerStatus implements CRI.
func (s *Server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	answer := &runtimeapi.ContainerStatusResponse{Status: s.statusLocked(c)}
	if r.GetVerbose() {
		answer.Info = map[string]string{"info": "{}"}
	}
	return answer, nil
}

func (s *Server) statusLocked(c *container) *runtimeapi.ContainerStatus {
	spec, imageRef := proto.CloneOf(c.config.GetImage()), c.imageID
	if tags, digests := s.referencesLocked(c.imageID); len(tags) > 0 {
		spec, imageRef = &runtimeapi.ImageSpec{Image: tags[0]}, digests[0]
	}
	answer := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    proto.CloneOf(c.config.GetMetadata()),
		State:       c.state,
		CreatedAt:   c.createdAt,
		StartedAt:   c.startedAt,
		FinishedAt:  c.finishedAt,
		ExitCode:    c.exitCode,
		Image:       spec,
		ImageRef:    imageRef,
		Reason:      c.reason,
		Message:     c.message,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		LogPath:     c.logPath,
	}
	for _, mount := range c.config.GetMounts() {
		answer.Mounts = append(answer.Mounts, proto.CloneOf(mount))
	}
	if c.resources != nil {
		answer.Resources = &runtimeapi.ContainerResources{Linux: proto.CloneOf(c.resources)}
	}
	if s.options.Flavor == Containerd24 {
		answer.ImageId = c.imageID
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED && c.reason == "" {
		answer.Reason = "Error"
		if c.exitCode == 0 {
			answer.Reason = "Completed"
		}
	}
	return answer
}

// UpdateContainerResources implements CRI: what is given replaces what was set, field by field.
func (s *Server) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil, status.Errorf(codes.Unknown, "cannot update the resources of container %q: it has exited", c.id)
	}
	if c.resources == nil {
		c.resources = &runtimeapi.LinuxContainerResources{}
	}
	// A new map or list replaces the old one in proto.Merge's place: merging would keep entries that were taken out.
	if r.GetLinux().GetHugepageLimits() != nil {
		c.resources.HugepageLimits = nil
	}
	if r.GetLinux() != nil {
		proto.Merge(c.resources, r.GetLinux())
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func sorted[T any](all map[string]*T, created func(*T) int64) []*T {
	list := make([]*T, 0, len(all))
	for _, item := range all {
		list = append(list, item)
	}
	slices.SortFunc(list, func(a, b *T) int { return int(created(a) - created(b)) })
	return list
}
