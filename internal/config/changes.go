package config

import (
	"encoding/json"
	"maps"
	"slices"
)

// Change is a field that two configurations have different values of.
type Change struct {
	// Field is the path of a leaf.
	Field string
	// Old and New are the values as JSON, empty for one that is not set. Those of
	// secrets are hidden.
	Old, New string
	// Live says that a running agent can apply it; else it takes a restart.
	Live bool
}

// Changes returns the fields that differ, in the order of their names.
func Changes(before, after Configuration) ([]Change, error) {
	a, err := leaves(before)
	if err != nil {
		return nil, err
	}
	b, err := leaves(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	live := liveFields()
	var out []Change
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if a[field] == b[field] {
			continue
		}
		c := Change{Field: field, Old: a[field], New: b[field], Live: slices.Contains(live, field)}
		if field == "staticPodURLHeader" || field == "staticPodURL" {
			c.Old, c.New = hide(c.Old), hide(c.New)
		}
		out = append(out, c)
	}
	return out, nil
}

func hide(text string) string {
	if text == "" {
		return ""
	}
	return hidden
}

// leaves returns the values of a configuration as JSON. A mapping is one value.
func leaves(c Configuration) (map[string]string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		return nil, err
	}
	out := map[string]string{}
	return out, flatten(out, "", top, ownSchema())
}

func flatten(out map[string]string, path string, fields map[string]json.RawMessage, s *schema) error {
	for name, raw := range fields {
		full := join(path, name)
		field := s.fields[name]
		if field == nil {
			continue // apiVersion and kind
		}
		if field.kind != kindObject {
			out[full] = string(raw)
			continue
		}
		var below map[string]json.RawMessage
		if err := json.Unmarshal(raw, &below); err != nil {
			return err
		}
		if err := flatten(out, full, below, field); err != nil {
			return err
		}
	}
	return nil
}
