package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// listEvents answers with the events that match ?fieldSelector=, as Kubernetes
// does for a list, or with ?watch=true for a watch: one JSON document per change
// that is newer than ?resourceVersion=.
func listEvents(a Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		selector, revision, err := eventQuery(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if watching, _ := strconv.ParseBool(r.URL.Query().Get("watch")); watching {
			watchEvents(w, r, a, selector, revision)
			return
		}
		list, newest, _ := a.EventsSince(revision)
		writeJSON(w, &corev1.EventList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(newest, 10)},
			Items:    matching(list, selector),
		})
	}
}

func eventQuery(r *http.Request) (selector fields.Selector, revision uint64, err error) {
	q := r.URL.Query()
	if selector, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return nil, 0, fmt.Errorf("cannot read the field selector: %w", err)
	}
	known := eventFields(&corev1.Event{})
	for _, requirement := range selector.Requirements() {
		if _, ok := known[requirement.Field]; !ok {
			return nil, 0, fmt.Errorf("cannot select events by %q", requirement.Field)
		}
	}
	if text := q.Get("resourceVersion"); text != "" {
		if revision, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, 0, fmt.Errorf("cannot read the resource version: %w", err)
		}
	}
	return selector, revision, nil
}

// eventFields are the fields that Kubernetes lets one select events by, as far
// as events here have them.
func eventFields(e *corev1.Event) fields.Set {
	return fields.Set{
		"metadata.name": e.Name, "metadata.namespace": e.Namespace, "type": e.Type, "reason": e.Reason,
		"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
		"involvedObject.fieldPath": e.InvolvedObject.FieldPath,
	}
}

func matching(list []corev1.Event, selector fields.Selector) []corev1.Event {
	out := []corev1.Event{}
	for i := range list {
		if selector.Matches(eventFields(&list[i])) {
			out = append(out, list[i])
		}
	}
	return out
}

// watchEvents answers until the client goes or the server closes.
func watchEvents(w http.ResponseWriter, r *http.Request, a Agent, selector fields.Selector, revision uint64) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w).Flush
	for {
		list, newest, next := a.EventsSince(revision)
		revision = newest
		for _, e := range matching(list, selector) {
			kind := watch.Modified
			if e.Count == 1 {
				kind = watch.Added
			}
			if err := out.Encode(WatchEvent{Type: kind, Object: e}); err != nil {
				klog.V(4).InfoS("Cannot answer", "err", err)
				return
			}
		}
		if err := flush(); err != nil {
			return
		}
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
	}
}
