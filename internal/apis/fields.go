package apis

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"nodelet.dev/nodelet/internal/spelling"
)

// jsonField is a field of a Go struct under its JSON name.
type jsonField struct {
	name  string
	t     reflect.Type
	index []int
}

// fieldsOf lists the JSON fields of a struct type; embedded structs without a
// name of their own are flattened, as JSON does.
func fieldsOf(t reflect.Type) []jsonField {
	var fields []jsonField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
		case name == "":
			fields = append(fields, jsonField{name: f.Name, t: f.Type, index: []int{i}})
		default:
			fields = append(fields, jsonField{name: name, t: f.Type, index: []int{i}})
		}
	}
	return fields
}

// jsonNames returns the JSON names of the fields of a struct type.
func jsonNames(t reflect.Type) []string {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// typeAt returns the type of the field at path below t, or nil.
func typeAt(t reflect.Type, path string) reflect.Type {
	for _, step := range steps(path) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		child, ok := childType(t, step)
		if !ok {
			return nil
		}
		t = child
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// steps cuts a path such as spec.containers[0].name into spec, containers, 0
// and name.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// cutLeaf cuts the last name off a path.
func cutLeaf(path string) (parent, leaf string) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

func join(prefix, path string) string {
	switch {
	case prefix == "":
		return path
	case path == "":
		return prefix
	}
	return prefix + "." + path
}

// joinRaw joins where the rest may start with an index.
func joinRaw(prefix, rest string) string {
	if strings.HasPrefix(rest, "[") {
		return prefix + rest
	}
	return join(prefix, rest)
}

func contains(names []string, name string) bool { return slices.Contains(names, name) }

// unknownField words the error for a field that does not exist.
func unknownField(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("unknown field; did you mean %q?", near)
	}
	return "unknown field"
}

// nearest returns the name that is at most a third of its letters away from
// the misspelt one, or "".
func nearest(misspelt string, names []string) string {
	best, bestDistance := "", len(misspelt)/3+1
	for _, name := range names {
		d := spelling.Distance(strings.ToLower(misspelt), strings.ToLower(name))
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}
