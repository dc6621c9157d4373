package convert

import (
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Reasons of configuration errors, as container statuses and events show them.
const (
	ReasonContainerConfig = "CreateContainerConfigError"
	ReasonSandboxConfig   = "ConfigPodSandboxError"
)

// Node is what a conversion needs to know of the machine.
type Node struct {
	Name string
	// HostIPs are the addresses of the machine, primary first.
	HostIPs []string
	// PodLogsDir holds one directory per pod.
	PodLogsDir string
	// ResolvConf is the text of the machine's resolv.conf (DNS-4).
	ResolvConf    string
	ClusterDNS    []string
	ClusterDomain string
	// Allocatable stands in for limits that a container does not have (ENV-9).
	Allocatable corev1.ResourceList
	// MemoryCapacityBytes is what oom_score_adj is relative to (RES-7); zero
	// means the allocatable memory.
	MemoryCapacityBytes int64
	// MinOOMScoreAdj is the lowest oom_score_adj that the machine lets the
	// runtime set.
	MinOOMScoreAdj int64
	// SeccompDir is where relative Localhost profiles are looked up.
	SeccompDir string
	// MaskedPaths are hidden from containers besides the well-known ones.
	MaskedPaths []string
}

// Warning is something that a pod's author should know, and which does not
// keep the pod from running. The reason is an event reason.
type Warning struct {
	Reason  string
	Message string
}

// LogDir returns the directory of a pod's container logs (STC-5).
func LogDir(podLogsDir string, p *corev1.Pod) string {
	return filepath.Join(podLogsDir, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// LogPath returns the log file of a container instance below LogDir.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// LogLink returns the name of the link that log collectors look for (STC-5).
func LogLink(key pod.Key, container, containerID string) string {
	return key.Name + "_" + key.Namespace + "_" + container + "-" + containerID + ".log"
}

// fieldOf returns the field path of the container called name.
func fieldOf(spec *corev1.PodSpec, name string) string {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return "spec.initContainers[" + strconv.Itoa(i) + "]"
		}
	}
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return "spec.containers[" + strconv.Itoa(i) + "]"
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return "spec.ephemeralContainers[" + strconv.Itoa(i) + "]"
		}
	}
	return "spec"
}

// containers yields the init and normal containers in spec order.
func containers(spec *corev1.PodSpec) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}
