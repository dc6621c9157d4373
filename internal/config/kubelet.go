package config

import (
	"time"

	yaml3 "go.yaml.in/yaml/v3"
)

// Ignored is a field of a KubeletConfiguration that nodelet does not have.
type Ignored struct {
	Field  string
	Origin Origin
}

// unset reports whether a KubeletConfiguration leaves a field to its default:
// tools that write the whole object write zeros for what nobody chose, and the
// kubelet takes its default for those.
func unset(path string, n *yaml3.Node) bool {
	switch path {
	case "fileCheckFrequency", "httpCheckFrequency", "runtimeRequestTimeout", "containerRuntimeEndpoint",
		"podLogsDir", "maxPods", "registryBurst", "logging.format":
		return isZero(n)
	}
	return false
}

// isZero reports whether a value says nothing: null, zero, no time, no text, no
// items.
func isZero(n *yaml3.Node) bool {
	if n.Kind != yaml3.ScalarNode {
		return n.Kind != yaml3.AliasNode && len(n.Content) == 0
	}
	switch n.Tag {
	case "!!null":
		return true
	case "!!int":
		return n.Value == "0"
	case "!!str":
		d, err := time.ParseDuration(n.Value)
		return n.Value == "" || (err == nil && d == 0)
	}
	return false
}

// ignore reports a field that nodelet does not have, and refuses what the
// kubelet would not know either. What says nothing is not reported, except for
// numbers: zero may turn something off.
func (d *decoder) ignore(key, n *yaml3.Node, s *schema, path string) {
	switch {
	case s.kind == kindObject && n.Kind == yaml3.MappingNode:
		d.ignoreObject(n, s, path)
		return
	case s.kind == kindList && s.item.kind == kindObject && n.Kind == yaml3.SequenceNode:
		for _, item := range n.Content {
			if item.Kind == yaml3.MappingNode {
				d.check(item, s.item, path+"[]")
			}
		}
	}
	if !isZero(n) || n.Tag == "!!int" {
		d.ignored = append(d.ignored, Ignored{Field: path, Origin: d.origin(key)})
	}
}

func (d *decoder) ignoreObject(n *yaml3.Node, s *schema, path string) {
	d.pairs(n, path, func(key, n *yaml3.Node) {
		if s.fields[key.Value] == nil {
			d.unknown(key, s, path)
			return
		}
		d.ignore(key, n, s.fields[key.Value], join(path, key.Value))
	})
}

// check looks for fields that the kubelet would not know, in what is reported as
// a whole.
func (d *decoder) check(n *yaml3.Node, s *schema, path string) {
	before := len(d.ignored)
	d.ignoreObject(n, s, path)
	d.ignored = d.ignored[:before]
}
