package apis

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// support says what nodelet does with a field of a pod.
type support uint8

const (
	honoured  support = iota // done as Kubernetes documents it
	refused                  // not done; a pod that sets it is refused
	pointless                // has nothing to decide on a single node
)

// rule is what the table says about one field.
type rule struct {
	support support
	// reason says why a field is refused or pointless.
	reason string
	// accepts lets single values of a refused field pass, such as those that
	// the API server fills in. It gets the struct that holds the field too.
	accepts func(parent, value reflect.Value) bool
}

// rules is keyed by JSON field name.
type rules map[string]rule

// Unsupported returns, by field path, everything that the pod asks for and
// that nodelet does not do. Values that mean the same as leaving the field out
// pass, so it makes no difference whether the pod is defaulted.
func Unsupported(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	annotations := field.NewPath("metadata", "annotations")
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		// The old way to ask for a profile; without one the runtime's own applies.
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) &&
			p.Annotations[key] != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault {
			errs = append(errs, field.Forbidden(annotations.Key(key), "not supported yet: AppArmor"))
		}
	}
	walk(supportTable(), reflect.ValueOf(&p.Spec).Elem(), field.NewPath("spec"), func(path *field.Path, r rule, value any) {
		if r.support == refused {
			errs = append(errs, field.Forbidden(path, "not supported yet: "+r.reason))
		}
	})
	return errs
}

// WithoutEffect returns, by field path, what the pod sets and what cannot make
// a difference on a single node, each with the reason.
func WithoutEffect(p *corev1.Pod) []string {
	var notes []string
	walk(supportTable(), reflect.ValueOf(&p.Spec).Elem(), field.NewPath("spec"), func(path *field.Path, r rule, value any) {
		if r.support == pointless {
			notes = append(notes, fmt.Sprintf("%s has no effect: %s", path, r.reason))
		}
	})
	return notes
}

// walk visits every field that is set, and reports those whose rule is not
// honoured.
func walk(table map[string]rules, v reflect.Value, path *field.Path, report func(*field.Path, rule, any)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(table, v.Elem(), path, report)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(table, v.Index(i), path.Index(i), report)
		}
	case reflect.Struct:
		of, ok := table[v.Type().Name()]
		if !ok {
			return // a leaf, such as a quantity
		}
		for _, f := range fieldsOf(v.Type()) {
			walkField(table, v, f, of[f.name], path.Child(f.name), report)
		}
	default: // scalars were judged with the field that holds them
	}
}

func walkField(table map[string]rules, parent reflect.Value, f jsonField, r rule, path *field.Path, report func(*field.Path, rule, any)) {
	value := parent.FieldByIndex(f.index)
	if unset(value) {
		return
	}
	if list, ok := reflect.TypeAssert[corev1.ResourceList](value); ok && r.support == honoured {
		for name := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				report(path.Key(string(name)), rule{support: refused, reason: "resources other than cpu and memory"}, nil)
			}
		}
		return
	}
	if r.support == honoured {
		walk(table, value, path, report)
		return
	}
	if r.accepts != nil && r.accepts(parent, value) {
		return
	}
	report(path, r, value.Interface())
}

// unset reports whether a field says nothing.
func unset(v reflect.Value) bool {
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// only accepts the given values of a string, a pointer to one, or a bool.
func only(values ...string) func(reflect.Value, reflect.Value) bool {
	return func(_, v reflect.Value) bool {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		return contains(values, fmt.Sprint(v.Interface()))
	}
}
