package fakecri

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is guarded by Server.mu.
type sandbox struct {
	id        string
	name      string
	config    *runtimeapi.PodSandboxConfig
	handler   string
	ready     bool
	createdAt int64
	ip        string
}

func (b *sandbox) hostNetwork() bool {
	return b.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// container is guarded by Server.mu, but for id, name, sandboxID, config and imageID, which never change.
type container struct {
	id        string
	name      string
	sandboxID string
	config    *runtimeapi.ContainerConfig
	imageID   string

	state      runtimeapi.ContainerState
	createdAt  int64
	startedAt  int64
	finishedAt int64
	exitCode   int32
	reason     string
	message    string
	logPath    string
	resources  *runtimeapi.LinuxContainerResources
	process    *Process // nil unless running
	files      *fileSystem
}

func (c *container) pidMode() runtimeapi.NamespaceMode {
	return c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
}

// newIDLocked is deterministic per server, so that transcripts of a test stay the same.
func (s *Server) newIDLocked(kind string) string {
	s.ids++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, s.ids))
	return hex.EncodeToString(sum[:])
}

// nowLocked never returns the same instant twice: creation order must be visible also where the clock stands still.
func (s *Server) nowLocked() int64 {
	s.lastTime = max(s.lastTime+1, time.Now().UnixNano())
	return s.lastTime
}

func (s *Server) newAddressLocked() string {
	s.addresses++
	// Two hosts of each 256 are not used: the network's own address and the gateway.
	return fmt.Sprintf("%s.%d.%d", s.options.AddressPrefix, s.addresses/254%256, s.addresses%254+2)
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

func containerName(c *runtimeapi.ContainerMetadata, p *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%s_%d", c.GetName(), p.GetName(), p.GetNamespace(), p.GetUid(), c.GetAttempt())
}

// reserveLocked holds a name for an id until releaseLocked.
func (s *Server) reserveLocked(kind, name, id string) error {
	if holder, taken := s.names[kind+name]; taken {
		// Neither release answers AlreadyExists, which one would expect, and 1.6 has no class for it at all.
		code := codes.FailedPrecondition
		if s.options.Flavor == Containerd16 {
			code = codes.Unknown
		}
		return status.Errorf(code, "failed to reserve %s name %q: name %q is reserved for %q", kind, name, name, holder)
	}
	s.names[kind+name] = id
	return nil
}

func (s *Server) releaseLocked(kind, name string) { delete(s.names, kind+name) }

const (
	sandboxKind   = "sandbox"
	containerKind = "container"
)

func (s *Server) findSandboxLocked(id string) (*sandbox, error) {
	if b, err := find(s.sandboxes, id); err == nil {
		return b, nil
	}
	return nil, status.Errorf(codes.NotFound, "cannot find sandbox %q", id)
}

func (s *Server) findContainerLocked(id string) (*container, error) {
	if c, err := find(s.containers, id); err == nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "cannot find container %q", id)
}

// find takes a whole id or a beginning that is unique.
func find[T any](all map[string]*T, id string) (*T, error) {
	if item, found := all[id]; found {
		return item, nil
	}
	var match *T
	for key, item := range all {
		if id != "" && strings.HasPrefix(key, id) {
			if match != nil {
				return nil, fmt.Errorf("cannot tell which of several is meant by %q", id)
			}
			match = item
		}
	}
	if match == nil {
		return nil, fmt.Errorf("cannot find %q", id)
	}
	return match, nil
}

func selected(labels, selector map[string]string) bool {
	for key, want := range selector {
		if got, found := labels[key]; !found || got != want {
			return false
		}
	}
	return true
}
