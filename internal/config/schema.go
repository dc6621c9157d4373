package config

import (
	_ "embed" // the fields of KubeletConfiguration
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kind is what a field takes.
type kind uint8

const (
	kindText     kind = iota
	kindNumber        // a whole number of 32 bits
	kindBool          // true or false
	kindDuration      // such as 1m30s
	kindList
	kindObject  // the fields of its schema
	kindMapping // keys of the user's choice
	kindAny     // what nodelet does not look into
)

// wants says what to write for a kind.
func (k kind) wants() string {
	switch k {
	case kindText:
		return "text"
	case kindNumber:
		return "a whole number"
	case kindBool:
		return "true or false"
	case kindDuration:
		return "a duration, such as 20s"
	case kindList:
		return "a list"
	case kindObject, kindMapping:
		return "a mapping"
	case kindAny:
	}
	return "anything"
}

// schema is the shape of a field and of what is below it.
type schema struct {
	kind   kind
	names  []string // of fields, in the order of the type
	fields map[string]*schema
	item   *schema // of a list or mapping
}

func (s *schema) add(name string, field *schema) {
	if s.fields == nil {
		s.fields = map[string]*schema{}
	}
	if s.fields[name] == nil {
		s.names = append(s.names, name)
	}
	s.fields[name] = field
}

// at returns the schema of a dotted path, or nil.
func (s *schema) at(path string) *schema {
	if path == "" {
		return s
	}
	for name := range strings.SplitSeq(path, ".") {
		if s == nil {
			return nil
		}
		s = s.fields[name]
	}
	return s
}

// ownSchema returns the shape of a NodeletConfiguration without its type.
func ownSchema() *schema {
	return schemaOf(reflect.TypeFor[Configuration]())
}

// schemaOf reads the shape of a type from its JSON tags.
func schemaOf(t reflect.Type) *schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return &schema{kind: kindDuration}
	}
	switch t.Kind() {
	case reflect.String:
		return &schema{kind: kindText}
	case reflect.Int32:
		return &schema{kind: kindNumber}
	case reflect.Bool:
		return &schema{kind: kindBool}
	case reflect.Slice:
		return &schema{kind: kindList, item: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{kind: kindMapping, item: schemaOf(t.Elem())}
	case reflect.Struct:
		s := &schema{kind: kindObject}
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				s.add(name, schemaOf(f.Type))
			}
		}
		return s
	default:
		panic("config: no schema for " + t.String())
	}
}

// kubeletFields lists the fields of KubeletConfiguration, one a line; those of
// the objects in a list stand behind []. A test holds it against the type,
// which would bring the packages of a whole cluster into the binary.
//
//go:embed kubelet_fields.txt
var kubeletFields string

// kubeletSchema returns the shape of a KubeletConfiguration. Its leaves are not
// looked into.
func kubeletSchema() *schema {
	root := &schema{kind: kindObject}
	for path := range strings.Lines(kubeletFields) {
		at := root
		for name := range strings.SplitSeq(strings.TrimSpace(path), ".") {
			name, list := strings.CutSuffix(name, "[]")
			next := at.fields[name]
			switch {
			case next == nil && list:
				next = &schema{kind: kindList, item: &schema{kind: kindAny}}
			case next == nil:
				next = &schema{kind: kindAny}
			}
			at.kind = kindObject
			at.add(name, next)
			at = next
			if list {
				at = next.item
			}
		}
	}
	return root
}
