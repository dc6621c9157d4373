package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hashVersion is written in front of each hash. A hash of another version says
// nothing about a container, so it is taken as equal (INV-21).
const hashVersion = "v1"

// ContainerHash covers what a swap in place replaces: name and image.
func ContainerHash(c *corev1.Container) string {
	return hashOf(struct {
		Name  string `json:"name"`
		Image string `json:"image"`
	}{c.Name, c.Image})
}

// SpecHash covers the replace-class fields of a pod as its author wrote it: the
// spec without images, resources, tolerations and the active deadline. It is
// read only when the durable record is lost; else whole specs are compared.
func SpecHash(user *corev1.Pod) string {
	spec := user.Spec.DeepCopy()
	spec.Tolerations = nil
	spec.ActiveDeadlineSeconds = nil
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Image = ""
			list[i].Resources = corev1.ResourceRequirements{}
		}
	}
	spec.EphemeralContainers = nil
	return hashOf(spec)
}

// SameHash reports whether two hashes can belong to the same meaning: equal, or
// made by different versions of the rules, or absent.
func SameHash(a, b string) bool {
	va, _, okA := strings.Cut(a, "-")
	vb, _, okB := strings.Cut(b, "-")
	if !okA || !okB || va != vb {
		return true
	}
	return a == b
}

func hashOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		// Only a type that JSON cannot express gets here: a bug in this file.
		panic(fmt.Sprintf("cannot hash %T: %v", v, err))
	}
	h := fnv.New64a()
	h.Write(text)
	return fmt.Sprintf("%s-%016x", hashVersion, h.Sum64())
}
