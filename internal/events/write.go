package events

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// write puts an event into the program's log, and so into the journal.
func write(e *corev1.Event, message string) {
	o := e.InvolvedObject
	subject := []any{"object", o.Kind + "/" + o.Name}
	if o.Kind == "Pod" {
		subject = []any{"pod", klog.KRef(o.Namespace, o.Name), "podUID", o.UID}
		if c := containerOf(o.FieldPath); c != "" {
			subject = append(subject, "container", c)
		}
	}
	text := "Event"
	if e.Type == corev1.EventTypeWarning {
		text = "Warning event"
	}
	klog.InfoS(text, append(subject, "reason", e.Reason, "message", message, "count", e.Count)...)
}
