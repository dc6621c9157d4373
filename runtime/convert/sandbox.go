package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// SandboxInput is what a sandbox configuration is made from.
type SandboxInput struct {
	Pod     *corev1.Pod
	Attempt uint32
	// SpecHash is pod.SpecHash of the pod as its author wrote it.
	SpecHash string
	Node     Node
}

// SandboxConfig returns the configuration of a pod's sandbox.
func SandboxConfig(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p := in.Pod
	hostname, err := sandboxHostname(p, in.Node.ClusterDomain)
	if err != nil {
		return nil, err
	}
	dns, _, err := DNS(p, in.Node)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: in.Attempt,
		},
		Hostname:     hostname,
		LogDirectory: LogDir(in.Node.PodLogsDir, p),
		DnsConfig:    dns,
		PortMappings: portMappings(p),
		Labels:       sandboxLabels(p),
		Annotations:  sandboxAnnotations(p, in.SpecHash),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: sandboxSecurity(p),
			Resources:       podResources(p),
			Overhead:        overhead(p),
		},
	}, nil
}

// SandboxWarnings returns what is worth an event about a pod's sandbox.
func SandboxWarnings(p *corev1.Pod, node Node) []Warning {
	_, warnings, err := DNS(p, node)
	if err != nil {
		return nil // SandboxConfig reports it
	}
	return warnings
}

// portMappings maps the host ports of all containers; the kubelet leaves out
// sidecars and init containers. The host network needs none (SB-5).
func portMappings(p *corev1.Pod) []*runtimeapi.PortMapping {
	if p.Spec.HostNetwork {
		return nil
	}
	var mappings []*runtimeapi.PortMapping
	for _, hp := range pod.HostPorts(&p.Spec) {
		target, ok := containerPort(&p.Spec, hp)
		if !ok {
			continue
		}
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol: protocol(hp.Protocol), ContainerPort: target, HostPort: hp.Port, HostIp: hp.IP,
		})
	}
	return mappings
}

// containerPort returns the port of the pod behind a host port.
func containerPort(spec *corev1.PodSpec, hp pod.HostPort) (int32, bool) {
	for c := range containers(spec) {
		for i := range c.Ports {
			one := &corev1.PodSpec{Containers: []corev1.Container{{Ports: c.Ports[i : i+1]}}}
			if slices.Contains(pod.HostPorts(one), hp) {
				return c.Ports[i].ContainerPort, true
			}
		}
	}
	return 0, false
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	case corev1.ProtocolTCP:
		return runtimeapi.Protocol_TCP
	}
	return runtimeapi.Protocol_TCP
}

func sandboxSecurity(p *corev1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p, ""),
		// The pause process needs nothing that the default profile forbids (SB-6).
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for c := range containers(&p.Spec) {
		out.Privileged = out.Privileged || privileged(c)
	}
	for i := range p.Spec.EphemeralContainers {
		out.Privileged = out.Privileged || privileged((*corev1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	sc := p.Spec.SecurityContext
	if sc == nil {
		return out
	}
	if sc.RunAsUser != nil {
		out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
		// A group without a user is refused by runtimes, and the group of the
		// pause process matters to nobody, so alone it is left out (SEC-7).
		if sc.RunAsGroup != nil {
			out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
		}
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(sc)
	return out
}

// namespaces returns which namespaces are shared with whom (SEC-1 to SEC-3).
func namespaces(p *corev1.Pod, targetID string) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
	if p.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	case targetID != "":
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, targetID
	}
	return o
}

func groups(sc *corev1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	ids := slices.Clone(sc.SupplementalGroups)
	if sc.FSGroup != nil && !slices.Contains(ids, *sc.FSGroup) {
		ids = append(ids, *sc.FSGroup)
	}
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		return ids, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return ids, runtimeapi.SupplementalGroupsPolicy_Merge
}

func privileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}
