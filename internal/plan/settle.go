package plan

import (
	"slices"
	"strings"
	"time"

	"nodelet.dev/nodelet/internal/pod"
)

// Delays after failed operations. The first retry comes fast, since most
// failures of a runtime are passing ones.
const (
	retryInitial = time.Second
	retryMax     = 30 * time.Second
	// What another pod holds is asked for often: it costs no call, and nobody
	// tells when it is free.
	conflictMax = 2 * time.Second
)

// triesBeforeNewAttempt is how often a reserved name is tried again before its
// number is given up: the request that holds it may still land.
const triesBeforeNewAttempt = 8

// Settle returns the record with the results of finished actions folded in.
func Settle(rec pod.Record, results []Result, limits Limits, now pod.Stamp) pod.Record {
	rec = rec.Clone()
	for _, r := range results {
		settleOne(&rec, r, limits, now)
	}
	return rec
}

func settleOne(rec *pod.Record, r Result, limits Limits, now pod.Stamp) {
	if pod.ClassOf(r.Err) == pod.ClassCancelled {
		return // given up on purpose; the next observation tells what became of it
	}
	switch r.Action.Op {
	case OpSetUpVolumes:
		rec.VolumesReady = r.Err == nil
		rec.VolumesFailure = failed(rec.VolumesFailure, r, "FailedMount", "", now)
	case OpTearDownVolumes:
		rec.TornDown = r.Err == nil
		rec.VolumesFailure = failed(rec.VolumesFailure, r, "FailedUnMount", "", now)
	case OpCreateSandbox:
		settleSandbox(rec, r, now)
	case OpStopSandbox, OpRemoveSandbox:
		rec.Sandbox.StopFailure = failed(rec.Sandbox.StopFailure, r, "KillPodSandboxError", "", now)
		if r.Err == nil && r.Action.Op == OpStopSandbox && !slices.Contains(rec.Sandbox.Stopped, r.Action.ID) {
			rec.Sandbox.Stopped = append(slices.Clone(rec.Sandbox.Stopped), r.Action.ID)
		}
	case OpPullImage, OpCreateContainer, OpStartContainer, OpStopContainer, OpKillContainer, OpRemoveContainer:
		rec.SetContainer(r.Action.Container, settleContainer(rec.Container(r.Action.Container), r, limits, now))
	}
}

func settleSandbox(rec *pod.Record, r Result, now pod.Stamp) {
	rec.Sandbox.Failure = failed(rec.Sandbox.Failure, r, "CreatePodSandboxError", "", now)
	if givesUpName(rec.Sandbox.Failure) {
		rec.Sandbox.Attempts++
	}
}

func settleContainer(cr pod.ContainerRecord, r Result, limits Limits, now pod.Stamp) pod.ContainerRecord {
	switch r.Action.Op {
	case OpPullImage:
		return settlePull(cr, r, limits, now)
	case OpCreateContainer:
		cr.Failure = failed(cr.Failure, r, "CreateContainerError", "create", now)
		if givesUpName(cr.Failure) {
			cr.Attempts++
		}
		if pod.ClassOf(r.Err) == pod.ClassNotFound {
			cr.Pulled = pod.Pulled{} // the image went away in between
		}
	case OpStartContainer:
		cr.Failure = failed(cr.Failure, r, "RunContainerError", "start", now)
		switch pod.ClassOf(r.Err) {
		case pod.ClassNone, pod.ClassUnavailable, pod.ClassDeadline, pod.ClassConflict:
			// Nothing was refused that we know of; a conflict is with the call of an
			// agent that is gone.
		default:
			cr.StartFailed = r.Action.ID
		}
	case OpStopContainer, OpKillContainer, OpRemoveContainer:
		if r.Action.Op == OpKillContainer && r.Err == nil {
			// The kill shows in the next observation; until then it counts as a try.
			r.Err = pod.Errorf(pod.ClassDeadline, "", "container %s was killed and has not ended yet", r.Action.Container)
		}
		cr.StopFailure = failed(cr.StopFailure, r, "KillContainerError", "", now)
	default:
	}
	return cr
}

func settlePull(cr pod.ContainerRecord, r Result, limits Limits, now pod.Stamp) pod.ContainerRecord {
	key := pullKey(r.Action.Image)
	if r.Err == nil {
		cr.Pulled = pod.Pulled{Image: r.Action.Image, Ref: r.Image, Attempt: r.Action.Attempt}
		if cr.Failure != nil && isPullKey(cr.Failure.Key) {
			cr.Failure = nil
		}
		return cr
	}
	cr.Failure = failed(cr.Failure, r, "ErrImagePull", key, now)
	cr.Failure.Until = now.Add(retryAfter(cr.Failure.Count, limits.PullInitial, limits.PullMax))
	return cr
}

// failed returns the failure after one more result: nil after success, a first
// one, or the old one counted up when the same thing failed before.
func failed(old *pod.Failure, r Result, reason, key string, now pod.Stamp) *pod.Failure {
	if r.Err == nil {
		return nil
	}
	f := pod.Failure{Since: now, Key: key}
	if old != nil && old.Key == key {
		f = *old
	}
	f.Class = pod.ClassOf(r.Err)
	// A runtime that is away says nothing about the pod: try again soon, and do
	// not let the absence add up to stronger means.
	if f.Class != pod.ClassUnavailable || f.Count == 0 || r.Action.Op == OpPullImage {
		f.Count++
	}
	f.Reason = pod.ReasonOf(r.Err, reason)
	f.Message = r.Err.Error()
	longest := retryMax
	if f.Class == pod.ClassConflict {
		longest = conflictMax
	}
	f.Until = now.Add(retryAfter(f.Count, retryInitial, longest))
	return &f
}

// givesUpName reports whether a reserved name has been tried often enough.
func givesUpName(f *pod.Failure) bool {
	return f != nil && f.Class == pod.ClassExists && f.Count%triesBeforeNewAttempt == 0
}

const pullPrefix = "pull "

func pullKey(image string) string { return pullPrefix + image }

func isPullKey(key string) bool { return strings.HasPrefix(key, pullPrefix) }
