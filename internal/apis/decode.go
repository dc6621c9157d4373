package apis

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// The kinds that nodelet takes.
const (
	KindPod        = "Pod"
	KindConfigMap  = "ConfigMap"
	KindSecret     = "Secret"
	KindSidecarSet = "SidecarSet"
)

// Document is one decoded object of a file.
type Document struct {
	// Kind is one of the Kind constants.
	Kind string
	// Object is *corev1.Pod, *corev1.ConfigMap, *corev1.Secret, or
	// *unstructured.Unstructured for a SidecarSet.
	Object runtime.Object
	// Line is the first line of the object in its file, from 1.
	Line int
	// Index is the position among the objects of the file, from 0.
	Index int

	text   chunk
	prefix string // path of the object inside the chunk: "" or "items[2]"
}

// LineOf returns the line of the file on which the field with the given path
// is, or that of its nearest parent that is written down.
func (d Document) LineOf(path string) int { return lineOf(d.text, join(d.prefix, path)) }

// Decode reads all objects of one file or body: YAML or JSON, several
// documents, and List kinds. A broken object is an error, the others still
// come. Objects are as written: not defaulted, not validated.
func Decode(data []byte) ([]Document, []*Error) {
	d := decoder{}
	for _, c := range split(data) {
		d.chunk(c)
	}
	return d.documents, d.errors
}

// header is what every object and every list starts with.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
}

type decoder struct {
	documents []Document
	errors    []*Error
	index     int
}

// chunk decodes one document, which is an object or a list of them.
func (d *decoder) chunk(c chunk) {
	raw, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil {
		line, text := shiftLines(err.Error(), c.line)
		d.errors = append(d.errors, &Error{Line: line, Index: d.index, Reason: "Syntax", Detail: text})
		d.index++
		return
	}
	if string(raw) == "null" {
		return
	}
	h, err := headerOf(raw)
	if err != nil {
		d.errors = append(d.errors, &Error{Line: c.line, Index: d.index, Reason: "Syntax", Detail: err.Error()})
		d.index++
		return
	}
	if item, ok := strings.CutSuffix(h.Kind, "List"); ok {
		d.list(c, raw, h, item)
		return
	}
	d.object(c, raw, h, "")
}

func headerOf(raw []byte) (header, error) {
	var h header
	if raw[0] != '{' {
		return h, fmt.Errorf("the document is not an object with apiVersion and kind")
	}
	// Wrong types in here are reported by the strict decoding that follows.
	var loose struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
		Metadata   any `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &loose); err != nil {
		return h, fmt.Errorf("cannot parse the document: %w", err)
	}
	h.APIVersion, h.Kind = text(loose.APIVersion), text(loose.Kind)
	if m, ok := loose.Metadata.(map[string]any); ok {
		h.Metadata.Name = text(m["name"])
		h.Metadata.GenerateName = text(m["generateName"])
		h.Metadata.Namespace = text(m["namespace"])
	}
	return h, nil
}

func text(v any) string {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return s
}

// list decodes the items of a List, PodList and so on. Items of a typed list
// may leave out apiVersion and kind.
func (d *decoder) list(c chunk, raw []byte, h header, itemKind string) {
	var list map[string]json.RawMessage
	var items []json.RawMessage
	err := json.Unmarshal(raw, &list)
	if err == nil && list["items"] != nil {
		err = json.Unmarshal(list["items"], &items)
	}
	if err != nil {
		d.errors = append(d.errors, &Error{Line: lineOf(c, "items"), Index: d.index, Kind: h.Kind, Field: "items", Reason: "Type", Detail: "must be a list of objects"})
		d.index++
		return
	}
	for key := range list {
		names := []string{"apiVersion", "kind", "metadata", "items"}
		if !contains(names, key) {
			d.errors = append(d.errors, &Error{Line: lineOf(c, key), Index: d.index, Kind: h.Kind, Field: key, Reason: "UnknownField", Detail: unknownField(key, names)})
		}
	}
	for i, item := range items {
		prefix := fmt.Sprintf("items[%d]", i)
		ih, err := headerOf(item)
		if err != nil {
			d.errors = append(d.errors, &Error{Line: lineOf(c, prefix), Index: d.index, Kind: itemKind, Reason: "Syntax", Detail: err.Error()})
			d.index++
			continue
		}
		if ih.Kind == "" && itemKind != "" {
			ih.Kind = itemKind
			if ih.APIVersion == "" {
				ih.APIVersion = h.APIVersion
			}
		}
		d.object(c, item, ih, prefix)
	}
}

// object decodes one object of a known kind.
func (d *decoder) object(c chunk, raw []byte, h header, prefix string) {
	index := d.index
	d.index++
	fail := func(field, reason, detail string) {
		d.errors = append(d.errors, &Error{
			Line: lineOf(c, join(prefix, field)), Index: index, Kind: h.Kind,
			Namespace: h.Metadata.Namespace, Name: h.Metadata.Name,
			Field: field, Reason: reason, Detail: detail,
		})
	}
	if field, detail := checkKind(h); detail != "" {
		fail(field, "Kind", detail)
		return
	}
	var object runtime.Object
	switch h.Kind {
	case KindPod:
		object = &corev1.Pod{}
	case KindConfigMap:
		object = &corev1.ConfigMap{}
	case KindSecret:
		object = &corev1.Secret{}
	case KindSidecarSet:
		object = &unstructured.Unstructured{}
	}
	before := len(d.errors)
	strict(raw, object, fail)
	if len(d.errors) > before {
		return
	}
	object.GetObjectKind().SetGroupVersionKind(groupVersionKind(h))
	d.documents = append(d.documents, Document{
		Kind: h.Kind, Object: object, Line: lineOf(c, prefix), Index: index, text: c, prefix: prefix,
	})
}

// shiftLines rewrites the line numbers that a YAML error counts from the start
// of its document, and returns the first of them.
func shiftLines(message string, first int) (int, string) {
	message = strings.TrimPrefix(message, "error converting YAML to JSON: ")
	line := 0
	message = regexp.MustCompile(`line (\d+)`).ReplaceAllStringFunc(message, func(s string) string {
		n, err := strconv.Atoi(strings.TrimPrefix(s, "line "))
		if err != nil {
			return s
		}
		n += first - 1
		if line == 0 {
			line = n
		}
		return fmt.Sprintf("line %d", n)
	})
	if line == 0 {
		line = first
	}
	return line, message
}
