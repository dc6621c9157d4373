package source

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nodelet.dev/nodelet/internal/pod"
)

// Set is everything that one source wants. It is not changed after it was sent.
type Set struct {
	// Source is the name that the pods carry in pod.SourceAnnotation.
	Source string
	// Pods are as their authors wrote them, with a namespace and with the
	// annotations that say where they come from, ordered by namespace and name.
	Pods        []*corev1.Pod
	ConfigMaps  []*corev1.ConfigMap
	Secrets     []*corev1.Secret
	SidecarSets []*unstructured.Unstructured
	// Problems are repeated in each set while they last.
	Problems []Problem
	// Unknown are origins that exist and of which a part cannot even be told
	// the name of. More pods than the set holds may belong to them, so what
	// runs from there is not to be removed.
	Unknown []string
}

// Problem is something that a source could not accept.
type Problem struct {
	Origin  string  // file path or URL
	Line    int     // 0 when it is not about a line
	Object  pod.Key // zero when it is not about an object with a name
	Kind    string  // kind of the object
	Field   string  // path of the field, "" when it is not about one
	Reason  string  // one word in camel case
	Message string  // a sentence with all of the above
	// KeptLastGood says that the last good version stays in force.
	KeptLastGood bool
}

func (p Problem) compare(other Problem) int {
	return cmp.Or(
		cmp.Compare(p.Origin, other.Origin), cmp.Compare(p.Line, other.Line),
		cmp.Compare(p.Field, other.Field), cmp.Compare(p.Message, other.Message),
	)
}

func (s Set) equal(other Set) bool {
	return s.Source == other.Source && slices.Equal(s.Problems, other.Problems) && slices.Equal(s.Unknown, other.Unknown) &&
		apiequality.Semantic.DeepEqual(s.Pods, other.Pods) &&
		apiequality.Semantic.DeepEqual(s.ConfigMaps, other.ConfigMaps) &&
		apiequality.Semantic.DeepEqual(s.Secrets, other.Secrets) &&
		apiequality.Semantic.DeepEqual(s.SidecarSets, other.SidecarSets)
}
