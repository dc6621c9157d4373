package config

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"

	yaml3 "go.yaml.in/yaml/v3"
)

// hidden stands for a value that is not to be shown.
const hidden = "REDACTED"

// Field is one value of a merged configuration.
type Field struct {
	Field  string `json:"field"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Fields returns the values in the order of the type. Secrets, which are the
// headers and the password of the URL of manifests, are shown when raw is set.
func (l *Loaded) Fields(raw bool) []Field {
	var out []Field
	l.shown(raw).each(ownSchema(), "", func(path string, leaf *value) {
		out = append(out, Field{Field: path, Value: leaf.plain(), Origin: leaf.origin.String()})
	})
	return out
}

// Values returns the merged configuration as encoding/json has it. It is a
// NodeletConfiguration that can be loaded, when raw is set.
func (l *Loaded) Values(raw bool) map[string]any {
	out := map[string]any{"apiVersion": APIVersion, "kind": Kind}
	for name, field := range l.shown(raw).fields {
		out[name] = field.plain()
	}
	return out
}

// YAML returns the merged configuration as YAML. With origins, each line ends
// with a comment that says where its value comes from.
func (l *Loaded) YAML(raw, origins bool) ([]byte, error) {
	n := nodeOf(l.shown(raw), ownSchema(), origins)
	head := []*yaml3.Node{text("apiVersion"), text(APIVersion), text("kind"), text(Kind)}
	n.Content = append(head, n.Content...)
	var b bytes.Buffer
	e := yaml3.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return b.Bytes(), e.Close()
}

func text(s string) *yaml3.Node {
	n := &yaml3.Node{}
	n.SetString(s)
	return n
}

// nodeOf returns the YAML of a value.
func nodeOf(v *value, s *schema, origins bool) *yaml3.Node {
	comment := func(n *yaml3.Node, v *value) {
		if origins {
			n.LineComment = v.origin.String()
		}
	}
	switch {
	case v.fields != nil:
		n := &yaml3.Node{Kind: yaml3.MappingNode}
		for _, name := range names(v, s) {
			item := s.item
			if s.kind == kindObject {
				item = s.fields[name]
			}
			key, below := text(name), nodeOf(v.fields[name], item, origins)
			if v.fields[name].isList && len(below.Content) > 0 {
				comment(key, v.fields[name])
			} else if len(v.fields[name].fields) == 0 {
				comment(below, v.fields[name])
			}
			n.Content = append(n.Content, key, below)
		}
		return n
	case v.isList:
		n := &yaml3.Node{Kind: yaml3.SequenceNode}
		for _, item := range v.list {
			below := nodeOf(item, s.item, origins)
			comment(below, item)
			n.Content = append(n.Content, below)
		}
		if len(n.Content) == 0 {
			n.Style = yaml3.FlowStyle
		}
		return n
	}
	switch scalar := v.scalar.(type) {
	case int32:
		return &yaml3.Node{Kind: yaml3.ScalarNode, Tag: "!!int", Value: strconv.Itoa(int(scalar))}
	case bool:
		return &yaml3.Node{Kind: yaml3.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(scalar)}
	default:
		return text(fmt.Sprint(scalar))
	}
}

// shown returns the tree without what is secret.
func (l *Loaded) shown(raw bool) *value {
	if raw {
		return l.tree
	}
	patch := object(Origin{})
	if headers := l.tree.fields["staticPodURLHeader"]; headers != nil {
		names := object(headers.origin)
		for name, v := range headers.fields {
			names.fields[name] = &value{origin: v.origin, isList: true, list: []*value{{origin: v.origin, scalar: hidden}}}
		}
		patch.fields["staticPodURLHeader"] = names
	}
	if v := l.tree.fields["staticPodURL"]; v != nil {
		shown := hidden
		if u, err := url.Parse(fmt.Sprint(v.scalar)); err == nil {
			shown = u.Redacted()
		}
		patch.fields["staticPodURL"] = &value{origin: v.origin, scalar: shown}
	}
	return merge(l.tree, patch)
}
