package source

import (
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"nodelet.dev/nodelet/internal/pod"
)

// Op says what happened to pods between two sets.
type Op string

// The operations, in the order in which Diff returns them (CFG-2).
const (
	Remove    Op = "REMOVE"    // left the set
	Add       Op = "ADD"       // is new in the set
	Update    Op = "UPDATE"    // is to be run in another way
	Delete    Op = "DELETE"    // is to end gracefully, and is still in the set
	Reconcile Op = "RECONCILE" // only its status was changed by someone else
)

// Change is one operation and the pods that it is about: of the old set for
// Remove, of the new one otherwise.
type Change struct {
	Op   Op
	Pods []*corev1.Pod
}

// Diff compares two sets of one source. It returns at most one change for each
// operation, in the documented order; pods keep the order of their set. Another
// UID under the same name is another pod (CFG-4).
func Diff(before, after []*corev1.Pod) []Change {
	found := map[Op][]*corev1.Pod{}
	previous := make(map[pod.Key]*corev1.Pod, len(before))
	for _, p := range before {
		previous[pod.KeyOf(p)] = p
	}
	current := make(map[pod.Key]*corev1.Pod, len(after))
	for _, p := range after {
		if current[pod.KeyOf(p)] != nil {
			continue // the second of a name was reported when the set was made
		}
		current[pod.KeyOf(p)] = p
		old := previous[pod.KeyOf(p)]
		switch {
		case old == p: // a source that did not read it again sends the same one
		case old == nil || old.UID != p.UID:
			found[Add] = append(found[Add], p)
		case !desiresSame(old, p) && p.DeletionTimestamp != nil:
			found[Delete] = append(found[Delete], p)
		case !desiresSame(old, p):
			found[Update] = append(found[Update], p)
		case !apiequality.Semantic.DeepEqual(old.Status, p.Status):
			found[Reconcile] = append(found[Reconcile], p)
		}
	}
	for _, p := range before {
		if now := current[pod.KeyOf(p)]; now == nil || now.UID != p.UID {
			found[Remove] = append(found[Remove], p)
		}
	}
	var changes []Change
	for _, op := range []Op{Remove, Add, Update, Delete, Reconcile} {
		if len(found[op]) > 0 {
			changes = append(changes, Change{Op: op, Pods: found[op]})
		}
	}
	return changes
}

// desiresSame reports whether two versions of a pod ask for the same (CFG-3).
func desiresSame(a, b *corev1.Pod) bool {
	return a == b || (apiequality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		apiequality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		apiequality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		apiequality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		apiequality.Semantic.DeepEqual(authored(a.Annotations), authored(b.Annotations)))
}

// authored returns the annotations without the ones that sources write.
func authored(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range annotations {
		switch k {
		case pod.SourceAnnotation, pod.OriginAnnotation, "kubernetes.io/config.mirror", "kubernetes.io/config.seen":
		default:
			out[k] = v
		}
	}
	return out
}
