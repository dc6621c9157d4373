package source

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/pod"
)

// id names an object within a source.
type id struct {
	kind string
	key  pod.Key
}

// item is one good object of an origin.
type item struct {
	id
	line  int
	value runtime.Object
}

// parsed is what one file or body holds.
type parsed struct {
	items    []item
	problems []Problem
	broken   []id // objects that cannot be accepted and whose name is known
	unknown  bool // something is broken that has no known name
}

// parse decodes, defaults and checks all objects of one origin. Objects stay as
// written, apart from the namespace and the marks of the source.
func parse(source, origin string, data []byte) parsed {
	var out parsed
	documents, errs := apis.Decode(data)
	for _, e := range errs {
		out.reject(origin, e)
	}
	if apis.Empty(data) {
		// Whoever means "nothing" removes the file or sends an empty list; this
		// is most likely a file that is being written.
		out.unknown = true
		out.problems = append(out.problems, Problem{
			Origin: origin, Reason: "Empty", Message: "cannot find any object in " + origin,
		})
	}
	seen := map[id]int{}
	for _, d := range documents {
		it, problems := accept(source, origin, d)
		first, double := seen[it.id]
		switch {
		case len(problems) > 0:
			out.problems = append(out.problems, problems...)
			out.broken = append(out.broken, it.id)
		case double:
			out.problems = append(out.problems, Problem{
				Origin: origin, Line: d.Line, Object: it.key, Kind: it.kind, Field: "metadata.name", Reason: "Duplicate",
				Message: fmt.Sprintf("cannot use the second %s %s of %s (line %d): the first is at line %d", it.kind, it.key, origin, d.Line, first),
			})
		default:
			seen[it.id] = d.Line
			out.items = append(out.items, it)
		}
	}
	return out
}

func (p *parsed) reject(origin string, e *apis.Error) {
	key := pod.Key{Namespace: e.Namespace, Name: e.Name}
	if key.Namespace == "" && e.Kind != apis.KindSidecarSet {
		key.Namespace = corev1.NamespaceDefault
	}
	if e.Name == "" {
		key = pod.Key{}
	}
	p.problems = append(p.problems, Problem{
		Origin: origin, Line: e.Line, Object: key, Kind: e.Kind, Field: e.Field, Reason: e.Reason,
		Message: fmt.Sprintf("%s: %s", origin, e),
	})
	switch {
	case e.Reason == "Kind" && e.Kind != "":
		// Another kind was never one of ours, so nothing is missing.
	case e.Name == "" || e.Kind == "":
		p.unknown = true
	default:
		p.broken = append(p.broken, id{kind: e.Kind, key: key})
	}
}

// accept checks one object and marks it with its source.
func accept(source, origin string, d apis.Document) (item, []Problem) {
	object, ok := d.Object.(metav1.Object)
	if !ok {
		// Decode makes only kinds with metadata.
		panic(fmt.Sprintf("%T has no metadata", d.Object))
	}
	adopt(object, source, origin)
	it := item{
		id:    id{kind: d.Kind, key: pod.Key{Namespace: object.GetNamespace(), Name: object.GetName()}},
		line:  d.Line,
		value: d.Object,
	}
	var problems []Problem
	report := func(reason string, errs field.ErrorList) {
		for _, e := range errs {
			line := d.LineOf(e.Field)
			problems = append(problems, Problem{
				Origin: origin, Line: line, Object: it.key, Kind: it.kind, Field: e.Field, Reason: reason,
				Message: fmt.Sprintf("%s: cannot accept %s %s at line %d: %s", origin, it.kind, it.key, line, e.Error()),
			})
		}
	}
	if p, ok := d.Object.(*corev1.Pod); ok {
		report("Invalid", apis.Validate(apis.Default(p)))
		report("Unsupported", apis.Unsupported(p))
		return it, problems
	}
	report("Invalid", apis.ValidateObject(apis.DefaultObject(d.Object)))
	if it.key.Name == "" && len(problems) == 0 {
		report("Invalid", field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")})
	}
	return it, problems
}

// adopt gives an object its namespace and the marks of its source, and takes
// away what only a server may set: manifests are often exported from a cluster.
func adopt(object metav1.Object, source, origin string) {
	if object.GetNamespace() == "" && !clusterScoped(object) {
		object.SetNamespace(corev1.NamespaceDefault)
	}
	object.SetUID(types.UID(""))
	object.SetResourceVersion("")
	object.SetGeneration(0)
	object.SetCreationTimestamp(metav1.Time{})
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	object.SetManagedFields(nil)
	object.SetSelfLink("")
	if p, ok := object.(*corev1.Pod); ok {
		p.Status = corev1.PodStatus{}
	}
	marks := map[string]string{}
	maps.Copy(marks, object.GetAnnotations())
	marks[pod.SourceAnnotation] = source
	marks[pod.OriginAnnotation] = origin
	object.SetAnnotations(marks)
}

// clusterScoped reports whether a kind has no namespace: SidecarSet alone.
func clusterScoped(object metav1.Object) bool {
	o, ok := object.(runtime.Object)
	return ok && o.GetObjectKind().GroupVersionKind().Kind == apis.KindSidecarSet
}
