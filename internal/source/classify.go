package source

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/qos"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/pod"
)

// Class says what it takes to bring a running pod to a new spec. A stronger
// class includes the weaker ones: a swap may come with other labels, a resize
// with other images.
type Class uint8

// The classes, from weak to strong.
const (
	None     Class = iota // nothing that counts was changed
	Metadata              // applied to the running pod
	Swap                  // images: only those containers are replaced
	Resize                // cpu and memory of a container
	Replace               // the old instance ends, then another one starts
)

// String returns the class in lower case.
func (c Class) String() string {
	switch c {
	case None:
		return "none"
	case Metadata:
		return "metadata"
	case Swap:
		return "swap"
	case Resize:
		return "resize"
	case Replace:
		return "replace"
	}
	return "unknown"
}

// Classify compares two versions of a pod as their author wrote them. Both are
// defaulted first, so that writing a default down is no change.
func Classify(before, after *corev1.Pod) Class {
	if pod.KeyOf(before) != pod.KeyOf(after) {
		return Replace
	}
	a, b := apis.Default(before), apis.Default(after)
	class := None
	if !apiequality.Semantic.DeepEqual(a.Labels, b.Labels) || !apiequality.Semantic.DeepEqual(authored(a.Annotations), authored(b.Annotations)) {
		class = Metadata
	}
	if !apiequality.Semantic.DeepEqual(a.Spec.Tolerations, b.Spec.Tolerations) ||
		!apiequality.Semantic.DeepEqual(a.Spec.ActiveDeadlineSeconds, b.Spec.ActiveDeadlineSeconds) {
		class = Metadata
		a.Spec.Tolerations, a.Spec.ActiveDeadlineSeconds = b.Spec.Tolerations, b.Spec.ActiveDeadlineSeconds
	}
	if added(a.Spec.EphemeralContainers, b.Spec.EphemeralContainers) {
		class = Metadata
		a.Spec.EphemeralContainers = b.Spec.EphemeralContainers
	}
	if qos.GetPodQOS(a) != qos.GetPodQOS(b) {
		return Replace // cgroup and oom_score_adj of the running processes are bound to it
	}
	class = max(class,
		level(a.Spec.Containers, b.Spec.Containers, before.Spec.Containers, after.Spec.Containers),
		level(a.Spec.InitContainers, b.Spec.InitContainers, before.Spec.InitContainers, after.Spec.InitContainers))
	if !apiequality.Semantic.DeepEqual(a.Spec, b.Spec) {
		return Replace
	}
	return class
}

// level takes over into a what can be changed in place, and returns the class
// of that. The pull policy follows from the tag of the image unless the author
// wrote one, so it may differ with the image.
func level(a, b, writtenA, writtenB []corev1.Container) Class {
	class := None
	if len(a) != len(b) {
		return class // the comparison of the specs finds it
	}
	for i := range a {
		if a[i].Name != b[i].Name {
			continue
		}
		if a[i].Image != b[i].Image {
			class = max(class, Swap)
			a[i].Image = b[i].Image
			if writtenA[i].ImagePullPolicy == writtenB[i].ImagePullPolicy {
				a[i].ImagePullPolicy = b[i].ImagePullPolicy
			}
		}
		if resizable(&a[i].Resources, &b[i].Resources) {
			class = max(class, Resize)
			a[i].Resources = b[i].Resources
		}
	}
	return class
}

// resizable reports whether two resources differ, and in cpu and memory alone.
func resizable(a, b *corev1.ResourceRequirements) bool {
	if apiequality.Semantic.DeepEqual(a, b) {
		return false
	}
	return apiequality.Semantic.DeepEqual(fixed(a), fixed(b))
}

// fixed returns the resources that cannot change in a running container.
func fixed(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	out := r.DeepCopy()
	for _, list := range []corev1.ResourceList{out.Limits, out.Requests} {
		delete(list, corev1.ResourceCPU)
		delete(list, corev1.ResourceMemory)
	}
	return out
}

// added reports whether b is a with more ephemeral containers behind it.
func added(a, b []corev1.EphemeralContainer) bool {
	return len(b) > len(a) && apiequality.Semantic.DeepEqual(a, b[:len(a):len(a)])
}

// Apply returns the effective pod of an instance: the new version defaulted,
// with the UID of the instance and what the old effective pod, which may be
// nil, had beside its spec.
func Apply(old, user *corev1.Pod, uid types.UID) *corev1.Pod {
	out := apis.Default(user)
	out.UID = uid
	if old != nil {
		out.CreationTimestamp = old.CreationTimestamp
		if out.Spec.NodeName == "" {
			out.Spec.NodeName = old.Spec.NodeName
		}
	}
	return out
}
