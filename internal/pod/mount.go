package pod

import (
	corev1 "k8s.io/api/core/v1"
)

// Mount is a host path that a container sees at a path of its own.
type Mount struct {
	HostPath      string
	ContainerPath string
	ReadOnly      bool
	// RecursiveReadOnly makes the mounts below HostPath read-only as well.
	RecursiveReadOnly bool
	Propagation       corev1.MountPropagationMode
}

// HostPort is one port of the node that a pod asks for.
type HostPort struct {
	IP       string // empty means every address
	Protocol corev1.Protocol
	Port     int32
}

// HostPorts returns the host ports of all containers, sidecars and init
// containers included, without duplicates, in spec order.
func HostPorts(spec *corev1.PodSpec) []HostPort {
	var ports []HostPort
	seen := map[HostPort]bool{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, p := range list[i].Ports {
				hp := HostPort{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
				if hp.Protocol == "" {
					hp.Protocol = corev1.ProtocolTCP
				}
				if hp.IP == "0.0.0.0" || hp.IP == "::" {
					hp.IP = ""
				}
				if hp.Port > 0 && !seen[hp] {
					seen[hp] = true
					ports = append(ports, hp)
				}
			}
		}
	}
	return ports
}
