package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// value is a piece of a configuration with its origin: a scalar, a list, or an
// object when fields is not nil.
type value struct {
	origin Origin
	scalar any // string, int32 or bool
	list   []*value
	isList bool
	fields map[string]*value
	null   bool // takes back what was said before
}

func object(origin Origin) *value { return &value{origin: origin, fields: map[string]*value{}} }

// merge lays over on base as a JSON merge patch does (RFC 7386): objects and
// mappings field by field, everything else, lists too, as a whole; null takes
// away what base says.
func merge(base, over *value) *value {
	if base == nil || base.fields == nil || over.fields == nil {
		if over.fields == nil {
			return over
		}
		base = object(over.origin) // so that nulls go away here too
	}
	out := object(over.origin)
	maps.Copy(out.fields, base.fields)
	for name, field := range over.fields {
		if field.null {
			delete(out.fields, name)
			continue
		}
		out.fields[name] = merge(out.fields[name], field)
	}
	return out
}

// plain returns the value as encoding/json has it.
func (v *value) plain() any {
	switch {
	case v.fields != nil:
		out := map[string]any{}
		for name, field := range v.fields {
			out[name] = field.plain()
		}
		return out
	case v.isList:
		out := make([]any, 0, len(v.list))
		for _, item := range v.list {
			out = append(out, item.plain())
		}
		return out
	}
	return v.scalar
}

// set puts a value at a dotted path of objects.
func (v *value) set(path string, to *value) {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		v.fields[name] = to
		return
	}
	if v.fields[name] == nil {
		v.fields[name] = object(to.origin)
	}
	v.fields[name].set(rest, to)
}

// find returns the value at a path as faults name it, such as clusterDNS[1], or
// the nearest above it.
func (v *value) find(path string) *value {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next := v.fields[name]
		if i, err := strconv.Atoi(name); err == nil && v.isList && i < len(v.list) {
			next = v.list[i]
		}
		if next == nil {
			break
		}
		v = next
	}
	return v
}

// each calls f for every leaf in the order of the schema: scalars, lists, the
// values of mappings, and objects that hold nothing.
func (v *value) each(s *schema, path string, f func(path string, leaf *value)) {
	if len(v.fields) == 0 {
		f(path, v)
		return
	}
	for _, name := range names(v, s) {
		item := s.item
		if s.kind == kindObject {
			item = s.fields[name]
		}
		v.fields[name].each(item, join(path, name), f)
	}
}

// names returns the fields that a value has, in the order of the schema.
func names(v *value, s *schema) []string {
	if s.kind == kindMapping {
		return slices.Sorted(maps.Keys(v.fields))
	}
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return v.fields[name] == nil })
}

// join puts a name behind a path. One that would not be clear is quoted.
func join(path, name string) string {
	if name == "" || strings.ContainsAny(name, ".[]\" \n") {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// defaults returns the tree of the defaults.
func defaults(s *schema) (*value, error) {
	text, err := json.Marshal(Default())
	if err != nil {
		return nil, err
	}
	d := decoder{kind: FromDefault, own: s}
	v := d.document(text)
	if len(d.faults) > 0 {
		return nil, Errors(d.faults)
	}
	return v, nil
}

// configuration returns the value that a tree stands for.
func (v *value) configuration() (Configuration, error) {
	var c Configuration
	text, err := json.Marshal(v.plain())
	if err != nil {
		return c, fmt.Errorf("cannot encode the merged configuration: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("cannot decode the merged configuration: %w", err)
	}
	c.APIVersion, c.Kind = APIVersion, Kind
	return c, nil
}
