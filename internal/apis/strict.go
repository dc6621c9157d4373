package apis

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
)

// strict decodes raw into object and reports each unknown, doubled or ill-typed
// field.
func strict(raw []byte, object runtime.Object, fail func(field, reason, detail string)) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		content := map[string]any{}
		if err := utiljson.Unmarshal(raw, &content); err != nil {
			fail("", "Type", err.Error())
			return
		}
		u.SetUnstructuredContent(content)
		return
	}
	problems, err := kjson.UnmarshalStrict(raw, object)
	if err != nil {
		field, value := locate(raw, reflect.TypeOf(object).Elem())
		fail(field, "Type", typeDetail(value, err))
		return
	}
	for _, problem := range problems {
		path := problem.Error()
		if e, ok := errors.AsType[kjson.FieldError](problem); ok {
			path = e.FieldPath()
		}
		parent, leaf := cutLeaf(path)
		t := typeAt(reflect.TypeOf(object).Elem(), parent)
		names := jsonNames(t)
		if contains(names, leaf) {
			fail(path, "DuplicateField", "is set twice")
			continue
		}
		fail(path, "UnknownField", unknownField(leaf, names))
	}
}

func typeDetail(value misfit, err error) string {
	// The text of a failed custom decoding, such as that of a quantity, says
	// more than the name of a Go type does.
	if value.err != nil {
		err = value.err
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		detail := fmt.Sprintf("must be %s, got %s", jsonTypeOf(e.Type), e.Value)
		if e.Type.Kind() == reflect.String && (e.Value == "bool" || e.Value == "number") {
			detail += "; put it in quotes" // YAML reads yes, on, y and 1.20 as something else
		}
		return detail
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if value.raw != "" {
		return fmt.Sprintf("cannot use %s as %s: %s", value.raw, jsonTypeOf(value.t), text)
	}
	return text
}

// misfit is a JSON value that does not decode into its Go type.
type misfit struct {
	raw string
	t   reflect.Type
	err error
}

// locate finds the field whose value does not fit, by decoding ever smaller
// parts. The decoder itself tells no path when a custom decoding fails, and
// none with list indexes otherwise. Only a broken object pays for it.
func locate(raw []byte, t reflect.Type) (string, misfit) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	here := func() (string, misfit) {
		m := misfit{raw: shorten(raw), t: t}
		m.err = json.Unmarshal(raw, reflect.New(t).Interface())
		return "", m
	}
	fits := func(part []byte, t reflect.Type) bool {
		return kjson.UnmarshalCaseSensitivePreserveInts(part, reflect.New(t).Interface()) == nil
	}
	switch raw[0] {
	case '{':
		var parts map[string]json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return here()
		}
		for name, part := range parts {
			child, ok := childType(t, name)
			if !ok || fits(part, child) {
				continue
			}
			rest, m := locate(part, child)
			if t.Kind() == reflect.Map {
				return joinRaw(fmt.Sprintf("[%s]", name), rest), m
			}
			return joinRaw(name, rest), m
		}
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil || t.Kind() != reflect.Slice {
			return here()
		}
		for i, part := range parts {
			if !fits(part, t.Elem()) {
				rest, m := locate(part, t.Elem())
				return joinRaw(fmt.Sprintf("[%d]", i), rest), m
			}
		}
	}
	return here()
}

func childType(t reflect.Type, name string) (reflect.Type, bool) {
	switch t.Kind() {
	case reflect.Struct:
		for _, f := range fieldsOf(t) {
			if f.name == name {
				return f.t, true
			}
		}
	case reflect.Map:
		return t.Elem(), true
	default:
	}
	return nil, false
}

func shorten(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}

// jsonTypeOf names a Go type as the author of a manifest knows it.
func jsonTypeOf(t reflect.Type) string {
	switch {
	case t == nil:
		return "another type"
	case t.Name() == "Quantity":
		return `a quantity such as "500m" or "64Mi"`
	case t.Name() == "Time":
		return "a time such as 2006-01-02T15:04:05Z"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return jsonTypeOf(t.Elem())
	default:
		return t.String()
	}
}
