package convert

import (
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Owned reports whether labels say that nodelet made the object, and for which
// pod. An object without a pod UID is nobody's.
func Owned(labels map[string]string) (types.UID, bool) {
	uid := labels[LabelPodUID]
	return types.UID(uid), labels[LabelOwned] == ownedValue && uid != ""
}

// Identity reads the identity from labels and annotations. A grace period that
// cannot be read is the default one.
func Identity(labels, annotations map[string]string) pod.Identity {
	grace, err := strconv.ParseInt(annotations[AnnotationPodGracePeriod], 10, 64)
	if err != nil || grace < 0 {
		grace = defaultTerminationGracePeriod
	}
	return pod.Identity{
		UID:          types.UID(labels[LabelPodUID]),
		Key:          pod.Key{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]},
		Spec:         annotations[AnnotationSpecHash],
		GraceSeconds: grace,
		Source:       annotations[AnnotationSource],
		Origin:       annotations[AnnotationOrigin],
	}
}

// Sandbox reads a listed sandbox. Its addresses and host network are not in a
// listing; see SandboxDetails.
func Sandbox(s *runtimeapi.PodSandbox) pod.Sandbox {
	return pod.Sandbox{
		ID:        s.GetId(),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: nanos(s.GetCreatedAt()),
		Identity:  Identity(s.GetLabels(), s.GetAnnotations()),
	}
}

// SandboxDetails adds what only the status of a sandbox says. A sandbox that
// is not ready has no addresses (SB-10).
func SandboxDetails(to pod.Sandbox, status *runtimeapi.PodSandboxStatus) pod.Sandbox {
	to.Ready = status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	to.HostNetwork = status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	to.IPs = nil
	if !to.Ready || to.HostNetwork {
		return to
	}
	network := status.GetNetwork()
	addresses := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		addresses = append(addresses, ip.GetIp())
	}
	for _, ip := range addresses {
		if _, err := netip.ParseAddr(ip); err == nil {
			to.IPs = append(to.IPs, ip)
		}
	}
	return to
}

// Container reads a listed container.
func Container(c *runtimeapi.Container) pod.Container {
	return pod.Container{
		ID:        c.GetId(),
		SandboxID: c.GetPodSandboxId(),
		Name:      containerName(c.GetLabels(), c.GetMetadata()),
		Kind:      pod.ParseKind(c.GetAnnotations()[AnnotationContainerKind]),
		Attempt:   c.GetMetadata().GetAttempt(),
		State:     containerState(c.GetState()),
		Image:     imageName(c.GetAnnotations(), c.GetImage()),
		ImageID:   c.GetImageRef(),
		Hash:      c.GetAnnotations()[AnnotationHash],
		CreatedAt: nanos(c.GetCreatedAt()),
	}
}

// ContainerDetails adds what only the status of a container says. The status is
// newer than the listing, so its state counts.
func ContainerDetails(to pod.Container, status *runtimeapi.ContainerStatus) pod.Container {
	to.State = containerState(status.GetState())
	to.ImageID = status.GetImageRef()
	to.StartedAt = nanos(status.GetStartedAt())
	to.FinishedAt = nanos(status.GetFinishedAt())
	if !to.FinishedAt.IsZero() && to.StartedAt.After(to.FinishedAt) {
		// containerd notes a start when it hears of it, which can be after the end.
		to.StartedAt = to.FinishedAt
	}
	to.ExitCode = status.GetExitCode()
	to.Reason = status.GetReason()
	to.Message = status.GetMessage()
	to.LogPath = status.GetLogPath()
	to.Resources = effectiveResources(status.GetResources().GetLinux())
	if u := status.GetUser().GetLinux(); u != nil {
		to.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
			UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups(),
		}}
	}
	return to
}

func containerName(labels map[string]string, metadata *runtimeapi.ContainerMetadata) string {
	if name := labels[LabelContainerName]; name != "" {
		return name
	}
	return metadata.GetName()
}

func imageName(annotations map[string]string, spec *runtimeapi.ImageSpec) string {
	for _, name := range []string{annotations[AnnotationContainerImage], spec.GetUserSpecifiedImage()} {
		if name != "" {
			return name
		}
	}
	return spec.GetImage()
}

func containerState(s runtimeapi.ContainerState) pod.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.StateExited
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return pod.StateUnknown
	}
	return pod.StateUnknown
}

// effectiveResources translates cgroup settings back into quantities. Shares
// and quota at their minimum mean that nothing was asked for.
func effectiveResources(r *runtimeapi.LinuxContainerResources) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	out := &corev1.ResourceRequirements{}
	if shares := r.GetCpuShares(); shares > minShares && shares <= maxShares {
		milli := (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
		out.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	}
	limits := corev1.ResourceList{}
	if quota, period := r.GetCpuQuota(), r.GetCpuPeriod(); quota > 0 && period > 0 && quota <= maxQuota {
		limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if memory := r.GetMemoryLimitInBytes(); memory > 0 {
		limits[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if len(limits) > 0 {
		out.Limits = limits
	}
	return out
}

// nanos reads a time of CRI, where zero means never.
func nanos(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
