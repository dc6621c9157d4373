package fakecri

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a container uses is invented but plausible: a thousandth of a core and one mebibyte.
const (
	nanoCoresUsed   = 1_000_000
	workingSetBytes = 1 << 20
)

// ContainerStats implements CRI.
func (s *Server) ContainerStats(_ context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats implements CRI.
func (s *Server) ListContainerStats(_ context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	filter := &runtimeapi.ContainerFilter{
		Id: r.GetFilter().GetId(), PodSandboxId: r.GetFilter().GetPodSandboxId(), LabelSelector: r.GetFilter().GetLabelSelector(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range s.matchingLocked(filter) {
		if c.process != nil {
			answer.Stats = append(answer.Stats, c.stats())
		}
	}
	return answer, nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	stats := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id:          c.id,
			Metadata:    proto.CloneOf(c.config.GetMetadata()),
			Labels:      c.config.GetLabels(),
			Annotations: c.config.GetAnnotations(),
		},
	}
	if c.process != nil {
		ran := uint64(max(0, now-c.startedAt)) / uint64(time.Second) * nanoCoresUsed
		stats.Cpu = &runtimeapi.CpuUsage{
			Timestamp:            now,
			UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: ran},
			UsageNanoCores:       &runtimeapi.UInt64Value{Value: nanoCoresUsed},
		}
		stats.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: workingSetBytes}}
	}
	return stats
}

// PodSandboxStats implements CRI.
func (s *Server) PodSandboxStats(_ context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findSandboxLocked(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: s.sandboxStatsLocked(b)}, nil
}

// ListPodSandboxStats implements CRI.
func (s *Server) ListPodSandboxStats(_ context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, b := range sorted(s.sandboxes, func(b *sandbox) int64 { return b.createdAt }) {
		if id := r.GetFilter().GetId(); b.ready && (id == "" || id == b.id) && selected(b.config.GetLabels(), r.GetFilter().GetLabelSelector()) {
			answer.Stats = append(answer.Stats, s.sandboxStatsLocked(b))
		}
	}
	return answer, nil
}

func (s *Server) sandboxStatsLocked(b *sandbox) *runtimeapi.PodSandboxStats {
	stats := &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id:          b.id,
			Metadata:    proto.CloneOf(b.config.GetMetadata()),
			Labels:      b.config.GetLabels(),
			Annotations: b.config.GetAnnotations(),
		},
		Linux: &runtimeapi.LinuxPodSandboxStats{},
	}
	for _, c := range s.matchingLocked(&runtimeapi.ContainerFilter{PodSandboxId: b.id}) {
		if c.process != nil {
			stats.Linux.Containers = append(stats.Linux.Containers, c.stats())
		}
	}
	return stats
}
