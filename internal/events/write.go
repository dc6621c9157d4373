package events

import (
	"log/slog"

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
	subject = append(subject, "reason", e.Reason, "message", message, "count", e.Count)
	if e.Type == corev1.EventTypeWarning {
		// klog has no warnings with fields; slog goes to the same place.
		slog.Warn("Warning event", subject...)
		return
	}
	klog.InfoS("Event", subject...)
}
