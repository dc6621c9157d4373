package convert

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// ContainerInput is what a container configuration is made from.
type ContainerInput struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	Kind      pod.Kind
	Attempt   uint32
	// Sandbox is the one that the container is made in.
	Sandbox pod.Sandbox
	// TargetID is the container whose processes an ephemeral container sees.
	TargetID string
	// ImageRef is what the runtime resolved the image to (IMG-21).
	ImageRef  string
	ImageUser ImageUser
	Mounts    []pod.Mount
	SpecHash  string
	Node      Node
}

// ContainerConfig returns the configuration of a container.
func ContainerConfig(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	env, err := Env(in)
	if err != nil {
		return nil, err
	}
	security, err := containerSecurity(in)
	if err != nil {
		return nil, err
	}
	mounts, err := mounts(in)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: in.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     expand(c.Command, env),
		Args:        expand(c.Args, env),
		WorkingDir:  c.WorkingDir,
		Envs:        env,
		Mounts:      mounts,
		Labels:      containerLabels(in.Pod, c.Name),
		Annotations: containerAnnotations(in),
		LogPath:     LogPath(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(in.Pod, c, in.Kind, in.Node),
			SecurityContext: security,
		},
	}, nil
}

func mounts(in ContainerInput) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for _, m := range in.Mounts {
		propagation := runtimeapi.MountPropagation_PROPAGATION_PRIVATE
		switch m.Propagation {
		case corev1.MountPropagationHostToContainer:
			propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			// The mounts of a container that is not privileged must not reach the
			// machine (VOL-25).
			if !privileged(in.Container) {
				return nil, in.invalid("volumeMounts", "has Bidirectional propagation at %s, which needs a privileged container", m.ContainerPath)
			}
			propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		case corev1.MountPropagationNone:
		}
		out = append(out, &runtimeapi.Mount{
			ContainerPath:     m.ContainerPath,
			HostPath:          m.HostPath,
			Readonly:          m.ReadOnly,
			RecursiveReadOnly: m.RecursiveReadOnly,
			Propagation:       propagation,
		})
	}
	return out, nil
}
