package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ProbeKind is what a probe is for.
type ProbeKind uint8

// The kinds of probes.
const (
	Startup ProbeKind = iota + 1
	Liveness
	Readiness
)

// String returns the kind as events begin with it.
func (k ProbeKind) String() string {
	switch k {
	case Startup:
		return "Startup"
	case Liveness:
		return "Liveness"
	case Readiness:
		return "Readiness"
	}
	return "Unknown"
}

// ProbeOf returns the probe of one kind that a container has, or nil.
func ProbeOf(c *corev1.Container, kind ProbeKind) *corev1.Probe {
	switch kind {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	case Readiness:
		return c.ReadinessProbe
	}
	return nil
}

// HasProbes reports whether a container has a probe of any kind.
func HasProbes(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// ProbeTarget asks for one probe of one container instance.
type ProbeTarget struct {
	// Container is the container in the spec. It gives the probe, the names of
	// ports and the variables of commands.
	Container   *corev1.Container
	ContainerID string
	Kind        ProbeKind
	// IP is the address of the pod, empty when it has none.
	IP string
	// Age is how long the instance had been running when the target was made.
	Age time.Duration
	// Known is what the probes of this kind concluded already.
	Known Verdict
	// Inherited says that the instance was running before the agent started.
	Inherited bool
}

// Probe returns the probe that the target asks for.
func (t *ProbeTarget) Probe() *corev1.Probe { return ProbeOf(t.Container, t.Kind) }
