package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations that a source writes on each pod that it delivers. The names are
// the kubelet's own, so that tools which read them keep working.
const (
	SourceAnnotation = "kubernetes.io/config.source" // "file", "http" or "api"
	OriginAnnotation = "nodelet.dev/config.origin"   // the file path or URL
)

// Key names a pod whatever instance of it is alive: namespace and name.
type Key struct {
	Namespace string
	Name      string
}

// KeyOf returns the key of a pod.
func KeyOf(p *corev1.Pod) Key { return Key{Namespace: p.Namespace, Name: p.Name} }

// String returns "namespace/name".
func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k Key) Compare(other Key) int {
	if c := strings.Compare(k.Namespace, other.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, other.Name)
}

// Instance is one incarnation of a pod together with what is remembered of it:
// the unit that the durable store keeps.
type Instance struct {
	// User is the pod as its author wrote it: decoded, not defaulted.
	User *corev1.Pod `json:"user"`
	// Pod is the effective pod: defaulted, with UID, what the workers run.
	Pod *corev1.Pod `json:"pod"`
	// Record is what the worker remembers.
	Record Record `json:"record"`
}

// UID returns the UID of the instance.
func (i Instance) UID() types.UID { return i.Pod.UID }

// Source returns the name of the source that delivered the pod.
func Source(p *corev1.Pod) string { return p.Annotations[SourceAnnotation] }

// Origin returns the file path or URL that the pod came from.
func Origin(p *corev1.Pod) string { return p.Annotations[OriginAnnotation] }
