package convert

import (
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// ImageUser is the user that an image names: a number, or a name that only the
// image's own passwd file can resolve, or neither, which means root.
type ImageUser struct {
	UID  *int64
	Name string
}

// containerSecurity returns the security context of a container: its own
// fields win over the pod's (SEC-5).
func containerSecurity(in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own := in.Container.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	ofPod := in.Pod.Spec.SecurityContext
	if ofPod == nil {
		ofPod = &corev1.PodSecurityContext{}
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(in.Pod, in.TargetID),
		Privileged:       privileged(in.Container),
		ReadonlyRootfs:   own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem,
		NoNewPrivs:       noNewPrivs(own),
		Capabilities:     capabilities(own.Capabilities),
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(ofPod)
	if err := setUser(out, in, firstOf(own.RunAsUser, ofPod.RunAsUser), firstOf(own.RunAsGroup, ofPod.RunAsGroup),
		firstOf(own.RunAsNonRoot, ofPod.RunAsNonRoot)); err != nil {
		return nil, err
	}
	var err error
	if out.Seccomp, err = seccomp(in, firstOf(own.SeccompProfile, ofPod.SeccompProfile)); err != nil {
		return nil, err
	}
	if own.ProcMount == nil || *own.ProcMount == corev1.DefaultProcMount {
		out.MaskedPaths = append(maskedPaths(), in.Node.MaskedPaths...)
		out.ReadonlyPaths = readonlyPaths()
	}
	return out, nil
}

// setUser decides who the first process is, and refuses root where the spec
// does (SEC-6).
func setUser(out *runtimeapi.LinuxContainerSecurityContext, in ContainerInput, user, group *int64, nonRoot *bool) error {
	mustNot := nonRoot != nil && *nonRoot
	if group != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *group}
	}
	if user != nil {
		if mustNot && *user == 0 {
			return in.invalid("securityContext.runAsUser", "is 0, and runAsNonRoot is set")
		}
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user}
		return nil
	}
	switch image := in.ImageUser; {
	case image.UID != nil:
		if mustNot && *image.UID == 0 {
			return in.invalid("securityContext.runAsNonRoot", "is set, and image %q runs as root", in.Container.Image)
		}
		out.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	case image.Name != "":
		if mustNot {
			return in.invalid("securityContext.runAsNonRoot",
				"is set, and image %q names its user %q, which cannot be told from root; set runAsUser", in.Container.Image, image.Name)
		}
		out.RunAsUsername = image.Name
	default:
		if mustNot {
			return in.invalid("securityContext.runAsNonRoot", "is set, and image %q names no user, so it runs as root", in.Container.Image)
		}
		out.RunAsUser = &runtimeapi.Int64Value{}
	}
	return nil
}

// noNewPrivs follows allowPrivilegeEscalation; what is privileged already is
// left alone (SEC-8).
func noNewPrivs(sc *corev1.SecurityContext) bool {
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return false
	}
	if sc.Privileged != nil && *sc.Privileged {
		return false
	}
	return sc.Capabilities == nil || !slices.Contains(sc.Capabilities.Add, "SYS_ADMIN") &&
		!slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN")
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

// seccomp returns the profile of a container (SEC-11): unconfined unless asked.
func seccomp(in ContainerInput, profile *corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	if profile == nil || privileged(in.Container) {
		return unconfined, nil
	}
	switch profile.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return unconfined, nil
	case corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case corev1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, in.invalid("securityContext.seccompProfile.localhostProfile", "is required with type Localhost")
		}
		path := *profile.LocalhostProfile
		if in.Node.SeccompDir != "" && !filepath.IsAbs(path) {
			path = filepath.Join(in.Node.SeccompDir, path)
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path}, nil
	}
	return nil, in.invalid("securityContext.seccompProfile.type", "has the unknown value %q", profile.Type)
}

// maskedPaths are the files of /proc and /sys that say too much about the
// machine (SEC-10); all runtimes and Kubernetes agree on them.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths are the parts of /proc that change the machine when written.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func (in ContainerInput) invalid(field, format string, args ...any) error {
	args = append([]any{in.Container.Name, pod.KeyOf(in.Pod), fieldOf(&in.Pod.Spec, in.Container.Name), field}, args...)
	return pod.Errorf(pod.ClassInvalid, ReasonContainerConfig, "cannot configure container %s of pod %s: %s.%s "+format, args...)
}

func firstOf[T any](values ...*T) *T {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	return nil
}
