package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Kind tells how a container takes part in the life of its pod.
type Kind uint8

// The kinds of containers, in the order in which a pod starts them (ephemeral
// ones at any time).
const (
	KindUnknown   Kind = iota // not in the spec
	KindInit                  // runs to completion before the next one starts
	KindSidecar               // an init container with restartPolicy Always
	KindNormal                // spec.containers
	KindEphemeral             // spec.ephemeralContainers
)

// String returns the kind's name as it is written in annotations and messages.
func (k Kind) String() string {
	switch k {
	case KindInit:
		return "init"
	case KindSidecar:
		return "sidecar"
	case KindNormal:
		return "normal"
	case KindEphemeral:
		return "ephemeral"
	case KindUnknown:
		return "unknown"
	}
	return "unknown"
}

// ParseKind is the inverse of Kind.String; other text is KindUnknown.
func ParseKind(s string) Kind {
	for _, k := range []Kind{KindInit, KindSidecar, KindNormal, KindEphemeral} {
		if k.String() == s {
			return k
		}
	}
	return KindUnknown
}

// IsSidecar reports whether an init container is restartable.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// KindOf returns the kind of the container called name in the spec.
func KindOf(spec *corev1.PodSpec, name string) Kind {
	_, k := Find(spec, name)
	return k
}

// Find returns the container called name and its kind, or nil and KindUnknown.
// An ephemeral container is returned as the container that it embeds.
func Find(spec *corev1.PodSpec, name string) (*corev1.Container, Kind) {
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			if IsSidecar(c) {
				return c, KindSidecar
			}
			return c, KindInit
		}
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == name {
			return c, KindNormal
		}
	}
	for i := range spec.EphemeralContainers {
		if c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return c, KindEphemeral
		}
	}
	return nil, KindUnknown
}

// RestartPolicy returns the policy that decides about a container: its own
// where it has one, else the pod's.
func RestartPolicy(spec *corev1.PodSpec, c *corev1.Container) corev1.RestartPolicy {
	if c.RestartPolicy != nil {
		return corev1.RestartPolicy(*c.RestartPolicy)
	}
	return spec.RestartPolicy
}

// MatchRule returns the action of the first restart rule of the container that
// matches the exit code (RR-1). Rules count only beside a container-level
// restart policy (RR-2).
func MatchRule(c *corev1.Container, exitCode int32) (corev1.ContainerRestartRuleAction, bool) {
	if c.RestartPolicy == nil {
		return "", false
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if in {
				return rule.Action, true
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !in {
				return rule.Action, true
			}
		}
	}
	return "", false
}

// RestartsAfter reports whether a container that ended with exitCode is to be
// started again: first its restart rules, then its effective policy.
func RestartsAfter(spec *corev1.PodSpec, c *corev1.Container, exitCode int32) bool {
	if action, ok := MatchRule(c, exitCode); ok {
		return action == corev1.ContainerRestartRuleActionRestart ||
			action == corev1.ContainerRestartRuleActionRestartAllContainers
	}
	switch RestartPolicy(spec, c) {
	case corev1.RestartPolicyAlways:
		return true
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	case corev1.RestartPolicyNever:
		return false
	}
	return true
}

// GracePeriod returns the termination grace period of a pod in seconds.
func GracePeriod(p *corev1.Pod) int64 {
	if p.Spec.TerminationGracePeriodSeconds != nil {
		return *p.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}
