package source

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/pod"
)

// held is what a source holds of each origin: the newest good version of every
// object. It does no I/O. The goroutine of Run owns it.
type held struct {
	source  string
	origins map[string]*origin
	// owner is the origin that delivers an object in the last set; it keeps the
	// object while it holds it, however the files are named (CFG-5).
	owner map[id]string
}

type origin struct {
	items    map[id]item
	problems []Problem
	unknown  bool
}

func newHeld(source string, lastGood map[string][]*corev1.Pod) *held {
	h := &held{source: source, origins: map[string]*origin{}, owner: map[id]string{}}
	for name, pods := range lastGood {
		o := &origin{items: map[id]item{}}
		for _, p := range pods {
			it := item{id: id{kind: apis.KindPod, key: pod.KeyOf(p)}, value: p}
			o.items[it.id] = it
			h.owner[it.id] = name
		}
		h.origins[name] = o
	}
	return h
}

func (h *held) origin(name string) *origin {
	o, ok := h.origins[name]
	if !ok {
		o = &origin{items: map[id]item{}}
		h.origins[name] = o
	}
	return o
}

// replace takes over what an origin holds now. Of objects that are broken the
// last good version stays; when something broken has no name, everything that
// is missing may be it, and stays.
func (h *held) replace(name string, now parsed) {
	o := h.origin(name)
	next := map[id]item{}
	for _, it := range now.items {
		if old, ok := o.items[it.id]; ok && apiequality.Semantic.DeepEqual(old.value, it.value) {
			it.value = old.value // share: equal sets then compare by pointer
		}
		next[it.id] = it
	}
	keep := func(i id) {
		if old, ok := o.items[i]; ok {
			if _, again := next[i]; !again {
				next[i] = old
			}
		}
	}
	for _, i := range now.broken {
		keep(i)
	}
	if now.unknown {
		for i := range o.items {
			keep(i)
		}
	}
	problems := slices.Clone(now.problems)
	for i := range problems {
		p := &problems[i]
		_, kept := o.items[id{kind: p.Kind, key: p.Object}]
		if p.Object == (pod.Key{}) {
			kept = now.unknown && len(o.items) > 0
		}
		if kept && p.Reason != "Duplicate" && p.Reason != "Kind" {
			p.KeptLastGood = true
			p.Message += "; the last good version stays in force"
		}
	}
	o.items, o.problems, o.unknown = next, problems, now.unknown
}

// fail notes that an origin exists and could not be read.
func (h *held) fail(name, reason, message string) {
	o := h.origin(name)
	p := Problem{Origin: name, Reason: reason, Message: message}
	if len(o.items) > 0 {
		p.KeptLastGood = true
		p.Message += "; the last good version stays in force"
	}
	o.problems, o.unknown = []Problem{p}, true
}

// forget drops an origin that is gone.
func (h *held) forget(name string) { delete(h.origins, name) }

// set builds the whole set from what is held, and settles who owns an object
// that several origins hold.
func (h *held) set(extra ...Problem) Set {
	s := Set{Source: h.source, Problems: slices.Clone(extra)}
	names := slices.Sorted(maps.Keys(h.origins))
	owner := map[id]string{}
	for _, name := range names {
		for i := range h.origins[name].items {
			if _, taken := owner[i]; !taken {
				owner[i] = name
			}
			if h.owner[i] == name {
				owner[i] = name
			}
		}
	}
	h.owner = owner
	for _, name := range names {
		o := h.origins[name]
		s.Problems = append(s.Problems, o.problems...)
		if o.unknown {
			s.Unknown = append(s.Unknown, name)
		}
		for _, it := range o.items {
			if owner[it.id] == name {
				s.add(it)
				continue
			}
			s.Problems = append(s.Problems, Problem{
				Origin: name, Line: it.line, Object: it.key, Kind: it.kind, Field: "metadata.name", Reason: "Duplicate",
				Message: fmt.Sprintf("cannot use %s %s of %s: %s already holds one of this name", it.kind, it.key, name, owner[it.id]),
			})
		}
	}
	s.sort()
	return s
}

func (s *Set) add(it item) {
	switch o := it.value.(type) {
	case *corev1.Pod:
		s.Pods = append(s.Pods, o)
	case *corev1.ConfigMap:
		s.ConfigMaps = append(s.ConfigMaps, o)
	case *corev1.Secret:
		s.Secrets = append(s.Secrets, o)
	case *unstructured.Unstructured:
		s.SidecarSets = append(s.SidecarSets, o)
	}
}

type named interface {
	GetNamespace() string
	GetName() string
}

func byName[T named](a, b T) int {
	return pod.Key{Namespace: a.GetNamespace(), Name: a.GetName()}.Compare(pod.Key{Namespace: b.GetNamespace(), Name: b.GetName()})
}

func (s *Set) sort() {
	slices.SortFunc(s.Pods, byName[*corev1.Pod])
	slices.SortFunc(s.ConfigMaps, byName[*corev1.ConfigMap])
	slices.SortFunc(s.Secrets, byName[*corev1.Secret])
	slices.SortFunc(s.SidecarSets, byName[*unstructured.Unstructured])
	slices.SortFunc(s.Problems, Problem.compare)
	s.Problems = slices.Compact(s.Problems)
}
