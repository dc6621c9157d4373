package podworkers

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// writeResult is how a write beside the waves ended.
type writeResult struct {
	text   []byte
	record pod.Record
	err    error
}

// commits reports whether a wave does what cannot be looked up afterwards. What
// is only made can: a sandbox or a container that has yet to be started is found
// by its number, so making it does not wait for the disk.
func commits(wave []plan.Action) bool {
	return slices.ContainsFunc(wave, func(a plan.Action) bool {
		return a.Op != plan.OpSetUpVolumes && a.Op != plan.OpCreateSandbox && a.Op != plan.OpCreateContainer
	})
}

// critical reports whether what changed must be on disk before the next wave:
// a decision that the runtime cannot tell again. The rest is written beside it.
func critical(before, after pod.Record) bool {
	if before.Phase != after.Phase || !reflect.DeepEqual(before.Stop, after.Stop) ||
		!reflect.DeepEqual(before.Outcome, after.Outcome) || !reflect.DeepEqual(before.RestartAll, after.RestartAll) {
		return true
	}
	for name, a := range after.Containers {
		b := before.Containers[name]
		if a.Replacing != b.Replacing || a.Retry != b.Retry || a.Backoff != b.Backoff || !reflect.DeepEqual(a.Exit, b.Exit) {
			return true
		}
	}
	return false
}

// write stores the record if its durable part changed and no write is in
// flight; one that is reports back, and then the newest is written. After a
// failure it waits before it tries again.
func (w *worker) write() {
	if w.writing {
		return
	}
	text := durable(w.rec)
	if bytes.Equal(text, w.stored) {
		w.failure = nil
		return
	}
	if w.failure != nil && time.Now().Before(w.retryAt) {
		return
	}
	w.writing = true
	rec, uid := w.rec, w.pod.UID
	go func() {
		w.written <- writeResult{text: text, record: rec, err: w.deps.Store.PutRecord(uid, rec)}
	}()
}

func (w *worker) writeDone(r writeResult) {
	w.writing = false
	if r.err != nil {
		w.failed(r.err)
		return
	}
	w.kept(r.text, r.record)
}

// kept notes what is on disk now.
func (w *worker) kept(text []byte, rec pod.Record) { w.stored, w.onDisk, w.failure = text, rec, nil }

func (w *worker) failed(err error) {
	if w.failure == nil {
		w.warn(fmt.Sprintf("Cannot store the record of the pod: %v; nothing new is started for it until that works", err))
	}
	w.failure = err
	w.retryAt = time.Now().Add(storeRetry)
}

// warn tells of trouble with the pod as a whole.
func (w *worker) warn(message string) {
	w.deps.Sink.Event(w.pod, plan.Event{Type: corev1.EventTypeWarning, Reason: "FailedSync", Message: message})
}
