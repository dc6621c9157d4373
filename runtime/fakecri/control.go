package fakecri

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxState is one line of a Snapshot.
type SandboxState struct {
	ID, UID, Namespace, Pod string
	Attempt                 uint32
	Ready                   bool
	IP                      string
	Labels, Annotations     map[string]string
}

// ContainerState is one line of a Snapshot.
type ContainerState struct {
	ID, SandboxID, UID, Name, Image string
	Attempt                         uint32
	State                           runtimeapi.ContainerState
	ExitCode                        int32
	Reason                          string
	Labels, Annotations             map[string]string
}

// Snapshot is everything that the runtime has, oldest first.
type Snapshot struct {
	Sandboxes  []SandboxState
	Containers []ContainerState
	// Images are the complete names of those on the machine.
	Images []string
}

// Snapshot tells what the runtime has now. No call is recorded for it.
func (s *Server) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var snapshot Snapshot
	for _, b := range sorted(s.sandboxes, func(b *sandbox) int64 { return b.createdAt }) {
		m := b.config.GetMetadata()
		snapshot.Sandboxes = append(snapshot.Sandboxes, SandboxState{
			ID: b.id, UID: m.GetUid(), Namespace: m.GetNamespace(), Pod: m.GetName(), Attempt: m.GetAttempt(), Ready: b.ready,
			IP: b.ip, Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
		})
	}
	for _, c := range sorted(s.containers, func(c *container) int64 { return c.createdAt }) {
		state := s.statusLocked(c)
		snapshot.Containers = append(snapshot.Containers, ContainerState{
			ID: c.id, SandboxID: c.sandboxID, UID: s.keyLocked(c).UID, Name: c.config.GetMetadata().GetName(),
			Image: c.config.GetImage().GetImage(), Attempt: c.config.GetMetadata().GetAttempt(), State: c.state,
			ExitCode: c.exitCode, Reason: state.GetReason(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	for _, i := range s.presentLocked() {
		snapshot.Images = append(snapshot.Images, i.ref)
	}
	return snapshot
}

// String is the snapshot without ids and addresses, one object per line, for transcripts.
func (s Snapshot) String() string {
	var text strings.Builder
	for _, b := range s.Sandboxes {
		state := "notready"
		if b.Ready {
			state = "ready"
		}
		fmt.Fprintf(&text, "sandbox %s/%s uid=%s attempt=%d %s\n", b.Namespace, b.Pod, b.UID, b.Attempt, state)
		for _, c := range s.Containers {
			if c.SandboxID != b.ID {
				continue
			}
			fmt.Fprintf(&text, "  container %s attempt=%d %s", c.Name, c.Attempt, strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_")))
			if c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
				fmt.Fprintf(&text, " code=%d %s", c.ExitCode, c.Reason)
			}
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// Exit ends a running container by itself, as its program could. An empty reason becomes Completed or Error.
func (s *Server) Exit(containerID string, code int32, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findContainerLocked(containerID)
	if err != nil {
		return err
	}
	if c.process == nil {
		return fmt.Errorf("cannot end container %q: it is in state %s", c.id, c.state)
	}
	s.endLocked(c, code, reason)
	return nil
}

// ExitNamed is Exit for the newest running attempt of a container of a pod.
func (s *Server) ExitNamed(key ContainerKey, code int32, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *container
	for _, c := range sorted(s.containers, func(c *container) int64 { return c.createdAt }) {
		if k := s.keyLocked(c); c.process != nil && k.UID == key.UID && k.Name == key.Name {
			newest = c
		}
	}
	if newest == nil {
		return fmt.Errorf("cannot end container %q of pod %q: none is running", key.Name, key.UID)
	}
	s.endLocked(newest, code, reason)
	return nil
}

// KillSandbox ends the sandbox's own process, as when someone kills it behind the runtime's back. Its containers go on
// unless they share its process namespace.
func (s *Server) KillSandbox(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(id)
	if err != nil {
		return err
	}
	for _, c := range s.containers {
		// POD is also the zero value: a container whose config says nothing shares.
		if c.sandboxID == b.id && c.process != nil && c.pidMode() == runtimeapi.NamespaceMode_POD {
			s.endLocked(c, killedCode, "")
		}
	}
	if b.ready {
		b.ready = false
		s.publishLocked(b, b.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// WriteFile puts a file into a running or created container, for programs and probes that look at files.
func (s *Server) WriteFile(containerID, path, content string) error {
	s.mu.Lock()
	c, err := s.findContainerLocked(containerID)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	c.files.write(path, content, false)
	return nil
}

// RemoveFile undoes WriteFile.
func (s *Server) RemoveFile(containerID, path string) error {
	s.mu.Lock()
	c, err := s.findContainerLocked(containerID)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	c.files.remove(path)
	return nil
}
