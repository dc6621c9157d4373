package events

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// Bounds of the log.
const (
	maxEvents = 1000
	maxAge    = time.Hour
)

// Log is a bounded log of events, newest last. It is safe for concurrent use.
type Log struct {
	component string
	host      string

	mu     sync.Mutex // guards the fields below for a few lines at a time
	events []*corev1.Event
	serial int
}

// NewLog returns an empty log; component and host go into each event's source.
func NewLog(component, host string) *Log { return &Log{component: component, host: host} }

// Add records that something happened to an object. The same thing again only
// raises a count; it goes to the program's log once per doubling.
func (l *Log) Add(ref corev1.ObjectReference, kind, reason, message string) {
	now := metav1.Now()
	count := l.add(ref, kind, reason, message, now)
	if count&(count-1) != 0 {
		return
	}
	object := ref.Namespace + "/" + ref.Name
	if kind == corev1.EventTypeWarning {
		klog.InfoS("Warning event", "object", object, "field", ref.FieldPath, "reason", reason, "message", message, "count", count)
		return
	}
	klog.V(1).InfoS("Event", "object", object, "field", ref.FieldPath, "reason", reason, "message", message, "count", count)
}

func (l *Log) add(ref corev1.ObjectReference, kind, reason, message string, now metav1.Time) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.events {
		if e.InvolvedObject == ref && e.Type == kind && e.Reason == reason && e.Message == message {
			again := *e // readers keep what they got
			again.Count++
			again.LastTimestamp = now
			l.events = append(slices.Delete(l.events, i, i+1), &again)
			return again.Count
		}
	}
	l.serial++
	l.events = append(l.events, &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: fmt.Sprintf("%s.%x.%d", ref.Name, now.UnixNano(), l.serial), CreationTimestamp: now,
		},
		InvolvedObject: ref, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: l.component, Host: l.host},
		ReportingController: l.component, ReportingInstance: l.host,
	})
	old := 0
	for old < len(l.events) && (len(l.events)-old > maxEvents || now.Sub(l.events[old].LastTimestamp.Time) > maxAge) {
		old++
	}
	l.events = slices.Delete(l.events, 0, old)
	return 1
}

// List returns the events, oldest first.
func (l *Log) List() []corev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]corev1.Event, 0, len(l.events))
	for _, e := range l.events {
		out = append(out, *e)
	}
	return out
}

// Pod refers to a pod, or to one of its containers when field is not empty.
func Pod(p *corev1.Pod, field string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, FieldPath: field}
}

// Container returns the field path of a container, as events name it.
func Container(spec *corev1.PodSpec, name string) string {
	if name == "" {
		return ""
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return fmt.Sprintf("spec.initContainers{%s}", name)
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return fmt.Sprintf("spec.ephemeralContainers{%s}", name)
		}
	}
	return fmt.Sprintf("spec.containers{%s}", name)
}
