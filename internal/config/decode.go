package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml3 "go.yaml.in/yaml/v3"
)

// What a file must say when it holds a configuration of the kubelet.
const (
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind       = "KubeletConfiguration"
)

// bytesMax is how large a file may be.
const bytesMax = 1 << 20

// decoder turns one file into a tree and collects what is wrong with it.
type decoder struct {
	kind    OriginKind
	path    string
	own     *schema // of NodeletConfiguration
	theirs  *schema // of KubeletConfiguration
	faults  []*Error
	ignored []Ignored
}

func (d *decoder) origin(n *yaml3.Node) Origin {
	if d.kind == FromDefault {
		return Origin{}
	}
	return Origin{Kind: d.kind, Name: d.path, Line: n.Line, Column: n.Column}
}

func (d *decoder) fault(n *yaml3.Node, reason string, args ...any) {
	d.faults = append(d.faults, &Error{Origin: d.origin(n), Reason: fmt.Sprintf(reason, args...)})
}

// document returns the tree of a file, as far as it is sound. The faults are in
// the order of the file.
func (d *decoder) document(text []byte) *value {
	top := &yaml3.Node{Line: 1, Column: 1}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	switch {
	case len(text) > bytesMax:
		d.fault(top, "the file is larger than %d bytes", bytesMax)
		return object(d.origin(top))
	case !utf8.Valid(text):
		d.fault(top, "the file is not UTF-8 text")
		return object(d.origin(top))
	}
	out := object(d.origin(top))
	if root := d.parse(text); root != nil {
		theirs, ok := d.head(root)
		if ok {
			out = d.object(root, d.own, theirs, "")
		}
	}
	slices.SortStableFunc(d.faults, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Origin.Line, b.Origin.Line), cmp.Compare(a.Origin.Column, b.Origin.Column))
	})
	return out
}

// parse returns the mapping that the one document of a text holds, or nil.
func (d *decoder) parse(text []byte) *yaml3.Node {
	decoder := yaml3.NewDecoder(bytes.NewReader(text))
	var found *yaml3.Node
	for {
		var n yaml3.Node
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, reason := syntaxError(text, err)
			d.fault(&yaml3.Node{Line: line}, "the file is not YAML: %s", reason)
			return nil
		}
		content := n.Content[0]
		switch {
		case content.Kind == yaml3.ScalarNode && content.Tag == "!!null":
		case found == nil:
			found = content
		default:
			d.fault(content, "a second document begins here, and a file holds one; put it into a drop-in of its own")
			return nil
		}
	}
	switch {
	case found == nil:
		d.fault(&yaml3.Node{Line: 1, Column: 1}, "the file is empty; %s", headWanted())
	case found.Kind != yaml3.MappingNode:
		d.fault(found, "the file does not hold fields; %s", headWanted())
		return nil
	}
	return found
}

func headWanted() string {
	return fmt.Sprintf("it must say apiVersion: %s and kind: %s", APIVersion, Kind)
}

// syntaxError returns the line of what is no YAML, and what it is. The parser
// names the line where the enclosing structure begins, so what counts is which
// beginning of the text it can still read, while that is cheap to find out.
func syntaxError(text []byte, err error) (line int, reason string) {
	reason = strings.TrimPrefix(err.Error(), "yaml: ")
	parts := regexp.MustCompile(`(?s)^line (\d+): (.*)$`).FindStringSubmatch(reason)
	lines := bytes.SplitAfter(text, []byte("\n"))
	if parts != nil {
		reason = parts[2]
		if n, err := strconv.Atoi(parts[1]); err == nil {
			line = n
		}
	}
	if len(lines) <= 500 {
		for line = len(lines); line > 1; line-- {
			var n yaml3.Node
			if yaml3.Unmarshal(bytes.Join(lines[:line-1], nil), &n) == nil {
				break
			}
		}
	}
	return min(max(line, 1), len(lines)), reason
}

// head checks what a file says that it is. It returns the schema of
// KubeletConfiguration when it is one.
func (d *decoder) head(root *yaml3.Node) (theirs *schema, ok bool) {
	found := map[string]*yaml3.Node{"apiVersion": root, "kind": root}
	said := map[string]string{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, n := root.Content[i].Value, root.Content[i+1]
		if _, counts := found[key]; counts && n.Kind == yaml3.ScalarNode && n.Tag == "!!str" {
			found[key], said[key] = n, n.Value
		}
	}
	version, kind := said["apiVersion"], said["kind"]
	switch {
	case version == APIVersion && kind == Kind:
		return nil, true
	case version == kubeletAPIVersion && kind == kubeletKind:
		return d.theirs, true
	case version == "" || kind == "":
		d.fault(root, "apiVersion or kind is missing; %s", headWanted())
	case kind == Kind || kind == kubeletKind:
		d.fault(found["apiVersion"], "unknown apiVersion %q of %s; %s", version, kind, headWanted())
	default:
		d.fault(found["kind"], "unknown kind %q; %s", kind, headWanted())
	}
	return nil, false
}

// object decodes the fields of a mapping. theirs is the schema of the same place
// in a KubeletConfiguration, or nil in a NodeletConfiguration.
func (d *decoder) object(n *yaml3.Node, own, theirs *schema, path string) *value {
	out := object(d.origin(n))
	d.pairs(n, path, func(key, n *yaml3.Node) {
		name, full := key.Value, join(path, key.Value)
		field := own.fields[name]
		switch {
		case path == "" && (name == "apiVersion" || name == "kind"):
		case theirs == nil && field == nil:
			d.unknown(key, own, path)
		case theirs != nil && theirs.fields[name] == nil && field != nil:
			d.fault(key, "%q is a field of %s, not of %s; put it into a drop-in of that kind", full, Kind, kubeletKind)
		case theirs != nil && theirs.fields[name] == nil:
			d.unknown(key, theirs, path)
		case field == nil:
			d.ignore(key, n, theirs.fields[name], full)
		default:
			var below *schema
			if theirs != nil {
				below = theirs.fields[name]
				if unset(full, n) {
					return
				}
			}
			if v := d.value(n, field, below, full); v != nil {
				v.origin = d.origin(key)
				out.fields[name] = v
			}
		}
	})
	return out
}

// pairs calls f for each field of a mapping and refuses what is no field.
func (d *decoder) pairs(n *yaml3.Node, path string, f func(key, n *yaml3.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind == yaml3.AliasNode || key.Tag == "!!merge" || key.Anchor != "":
			d.fault(key, "anchors and references to them are not allowed; write the value out")
		case key.Kind != yaml3.ScalarNode:
			d.fault(key, "the name of a field is expected here")
		case first[key.Value] != 0:
			d.fault(key, "the field %q is given twice, first in line %d", join(path, key.Value), first[key.Value])
		default:
			first[key.Value] = key.Line
			f(key, value)
		}
	}
}

// unknown says that there is no such field, and which one may be meant.
func (d *decoder) unknown(key *yaml3.Node, s *schema, path string) {
	full := join(path, key.Value)
	if s == d.own.at(path) && d.theirs.at(full) != nil {
		d.fault(key, "unknown field %q: it is one of %s that nodelet does not have", full, kubeletKind)
		return
	}
	if near := nearest(key.Value, s.names); near != "" {
		d.fault(key, "unknown field %q (did you mean %s?)", full, join(path, near))
		return
	}
	d.fault(key, "unknown field %q", full)
}

// value decodes one value, or returns nil after it reported why not.
func (d *decoder) value(n *yaml3.Node, s, theirs *schema, path string) *value {
	out := &value{origin: d.origin(n)}
	switch {
	case n.Kind == yaml3.AliasNode || n.Anchor != "":
		d.fault(n, "%s: anchors and references to them are not allowed; write the value out", path)
		return nil
	case n.Kind == yaml3.ScalarNode && n.Tag == "!!null":
		out.null = true
		return out
	case s.kind == kindObject && n.Kind == yaml3.MappingNode:
		return d.object(n, s, theirs, path)
	case s.kind == kindMapping && n.Kind == yaml3.MappingNode:
		out.fields = map[string]*value{}
		d.pairs(n, path, func(key, n *yaml3.Node) {
			if v := d.value(n, s.item, nil, join(path, key.Value)); v != nil {
				v.origin = d.origin(key)
				out.fields[key.Value] = v
			}
		})
		return out
	case s.kind == kindList && n.Kind == yaml3.SequenceNode:
		return d.items(n, s, path)
	case n.Kind == yaml3.ScalarNode:
		scalar, reason := scalarOf(n, s.kind)
		if reason != "" {
			d.fault(n, "%s: %s", path, reason)
			return nil
		}
		out.scalar = scalar
		return out
	}
	d.fault(n, "%s: %s is expected here", path, s.kind.wants())
	return nil
}

func (d *decoder) items(n *yaml3.Node, s *schema, path string) *value {
	out := &value{origin: d.origin(n), isList: true}
	for i, item := range n.Content {
		v := d.value(item, s.item, nil, fmt.Sprintf("%s[%d]", path, i))
		switch {
		case v == nil:
			return nil
		case v.null:
			d.fault(item, "%s[%d]: %s is expected here", path, i, s.item.kind.wants())
			return nil
		}
		out.list = append(out.list, v)
	}
	return out
}
