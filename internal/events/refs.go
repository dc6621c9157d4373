package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Pod refers to a pod, or to one of its containers when field is not empty.
func Pod(p *corev1.Pod, field string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, FieldPath: field}
}

// Container returns the field path of a container, as events name it.
func Container(spec *corev1.PodSpec, name string) string {
	if name == "" {
		return ""
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return fmt.Sprintf("spec.initContainers{%s}", name)
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return fmt.Sprintf("spec.ephemeralContainers{%s}", name)
		}
	}
	return fmt.Sprintf("spec.containers{%s}", name)
}

// containerOf is the inverse of Container: the name in a field path, or nothing.
func containerOf(field string) string {
	_, rest, _ := strings.Cut(field, "{")
	return strings.TrimSuffix(rest, "}")
}
