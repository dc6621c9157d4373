package convert

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"nodelet.dev/nodelet/internal/pod"
)

// Limits of the kernel and the period that Kubernetes uses (RES-3, RES-4).
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	periodMicros = 100_000
	minQuota     = 1000
	// maxQuota keeps the arithmetic of a quota that others wrote inside int64.
	maxQuota = math.MaxInt64 / 1000
)

// Scores of RES-7. The margins keep a burstable pod between the other classes.
const (
	oomGuaranteed   = -997
	oomBestEffort   = 1000
	oomBurstableMin = 1000 + oomGuaranteed
	oomBurstableMax = oomBestEffort - 1
)

// nodeCriticalPriority is the value of the class system-node-critical.
const nodeCriticalPriority = 2_000_001_000

// Shares returns the cpu.shares for a request of milliCPU (RES-3, RES-6).
func Shares(milliCPU int64) int64 {
	switch {
	case milliCPU <= 0:
		return minShares
	case milliCPU > maxShares:
		return maxShares
	}
	return min(max(milliCPU*sharesPerCPU/1000, minShares), maxShares)
}

// Quota returns the CPU quota in microseconds per period of 100 ms for a limit
// of milliCPU, zero for none (RES-4).
func Quota(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(min(milliCPU, maxQuota/periodMicros)*periodMicros/1000, minQuota)
}

// containerResources returns the cgroup settings of a container.
func containerResources(p *corev1.Pod, c *corev1.Container, kind pod.Kind, node Node) *runtimeapi.LinuxContainerResources {
	r := linuxResources(c.Resources.Requests, c.Resources.Limits)
	r.OomScoreAdj = OOMScoreAdj(p, c, kind, node)
	return r
}

// linuxResources translates requests and limits. A missing request is the limit.
func linuxResources(requests, limits corev1.ResourceList) *runtimeapi.LinuxContainerResources {
	cpuRequest, ok := requests[corev1.ResourceCPU]
	cpuLimit := limits[corev1.ResourceCPU]
	if !ok {
		cpuRequest = cpuLimit
	}
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          Shares(cpuRequest.MilliValue()),
		CpuQuota:           Quota(cpuLimit.MilliValue()),
		CpuPeriod:          periodMicros,
		MemoryLimitInBytes: max(limits.Memory().Value(), 0),
	}
}

// OOMScoreAdj returns the score of a container (RES-7), raised to what the
// machine allows.
func OOMScoreAdj(p *corev1.Pod, c *corev1.Container, kind pod.Kind, node Node) int64 {
	score := ownScore(p, c, node)
	if kind == pod.KindSidecar {
		// A sidecar must not be killed before the containers that it serves.
		for i := range p.Spec.Containers {
			score = min(score, ownScore(p, &p.Spec.Containers[i], node))
		}
	}
	return max(score, node.MinOOMScoreAdj)
}

func ownScore(p *corev1.Pod, c *corev1.Container, node Node) int64 {
	if p.Spec.Priority != nil && *p.Spec.Priority == nodeCriticalPriority {
		return oomGuaranteed
	}
	switch qos.ComputePodQOS(p) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	case corev1.PodQOSBurstable:
	}
	capacity := node.MemoryCapacityBytes
	if capacity <= 0 {
		capacity = node.Allocatable.Memory().Value()
	}
	if capacity <= 0 {
		return oomBurstableMax
	}
	request, ok := c.Resources.Requests[corev1.ResourceMemory]
	if !ok {
		request = c.Resources.Limits[corev1.ResourceMemory]
	}
	// Whole thousandths of the capacity first: a request may be too big to multiply.
	share := float64(request.Value()) / float64(capacity)
	score := oomBestEffort - int64(math.Min(share, 1)*1000)
	return min(max(score, oomBurstableMin), oomBurstableMax)
}

// podResources returns what the pod as a whole may use, without its overhead
// (SB-7). A limit holds for the pod only when every container has one (RES-5).
func podResources(p *corev1.Pod) *runtimeapi.LinuxContainerResources {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	limits := resourcehelper.PodLimits(p, options)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !podLimited(p, name) {
			delete(limits, name)
		}
	}
	return linuxResources(resourcehelper.PodRequests(p, options), limits)
}

func podLimited(p *corev1.Pod, name corev1.ResourceName) bool {
	if p.Spec.Resources != nil {
		if _, ok := p.Spec.Resources.Limits[name]; ok {
			return true
		}
	}
	for c := range containers(&p.Spec) {
		if _, ok := c.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
}

// overhead returns the overhead of a pod's runtime class, nil for none.
func overhead(p *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if len(p.Spec.Overhead) == 0 {
		return nil
	}
	return linuxResources(p.Spec.Overhead, p.Spec.Overhead)
}

// withDefaults returns a copy of the container whose missing limits are the
// pod's, else the node's (ENV-9).
func withDefaults(p *corev1.Pod, c *corev1.Container, node Node) *corev1.Container {
	out := *c
	out.Resources.Limits = corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := node.Allocatable[name]; ok {
			out.Resources.Limits[name] = q
		}
		if p.Spec.Resources != nil {
			if q, ok := p.Spec.Resources.Limits[name]; ok {
				out.Resources.Limits[name] = q
			}
		}
	}
	for name, q := range c.Resources.Limits {
		if !q.IsZero() || !isDefaulted(name) {
			out.Resources.Limits[name] = q
		}
	}
	return &out
}

func isDefaulted(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}
