package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// graceMin is the shortest time that a container gets to stop (C-15).
const graceMin = 2 * time.Second

// Failed stops after which stronger means are taken.
const (
	stopsBeforeKill   = 2 // then SIGKILL past the runtime
	stopsBeforeRemove = 4 // then forced removal
)

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// wholeSeconds rounds a duration up to seconds.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// RequestStop returns the record with a request to end the pod merged in. The
// grace only shrinks and the deadline only moves to an earlier moment (PW-5,
// PW-6, INV-5), so repeating a request changes nothing.
func RequestStop(rec pod.Record, p *corev1.Pod, req pod.StopRequest, now pod.Stamp) pod.Record {
	given := req.GraceSeconds
	if d := p.DeletionGracePeriodSeconds; d != nil && (given == nil || *d < *given) {
		given = d
	}
	grace := pod.GracePeriod(p)
	if given != nil {
		grace = *given
	}
	grace = max(grace, 1) // TRM-12
	stop := pod.Stop{RequestedAt: now, GraceSeconds: grace, Deadline: now.Add(seconds(grace))}
	if old := rec.Stop; old != nil {
		stop = *old
		// The pod's own grace, asked for again, does not restart the clock.
		if given != nil && grace < old.GraceSeconds {
			stop.GraceSeconds = grace
			stop.Deadline = pod.Earliest(old.Deadline, now.Add(seconds(grace)))
		}
	}
	stop.Delete = stop.Delete || req.Delete
	if stop.Reason == "" {
		stop.Reason, stop.Message = req.Reason, req.Message
	}
	rec.Stop = &stop
	return rec
}

// stop plans the end of one container that is running or in an unknown state.
// When stopping it keeps failing, stronger means are taken in turn, each after
// a wait; the pod's other containers do not wait for it.
func (b *builder) stop(c pod.Container, grace time.Duration, message string) {
	cr := b.rec.Container(c.Name)
	if b.held(cr.StopFailure) {
		b.wait(c.Name, cr.StopFailure.Reason, cr.StopFailure.Message)
		return
	}
	a := Action{Op: OpStopContainer, Container: c.Name, ID: c.ID, GraceSeconds: wholeSeconds(max(grace, graceMin)), Message: message}
	if f := cr.StopFailure; f != nil {
		switch {
		case f.Count >= stopsBeforeRemove:
			a = Action{Op: OpRemoveContainer, Container: c.Name, ID: c.ID, Message: "stopping and killing it failed"}
		case f.Count >= stopsBeforeKill:
			a = Action{Op: OpKillContainer, Container: c.Name, ID: c.ID, Message: "stopping it failed"}
		}
	}
	b.do(a)
}

// live reports whether a container may have a process.
func live(c pod.Container) bool {
	return c.State == pod.StateRunning || c.State == pod.StateUnknown
}
