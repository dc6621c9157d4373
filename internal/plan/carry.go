package plan

import "nodelet.dev/nodelet/internal/pod"

// carry brings the times of a record to the clock of this boot, once after each
// boot. Between boots there is only the wall clock, and it may have been wrong:
// what lies in the past stays there, and no wait gets longer than it ever is.
// From then on a step of the wall clock has no effect any more.
func carry(rec pod.Record, limits Limits, now pod.Stamp) pod.Record {
	rec.Started = rec.Started.Carry(now)
	rec.Sandbox.Failure = carryFailure(rec.Sandbox.Failure, limits, now)
	for name, cr := range rec.Containers {
		cr.Exit = carryExit(cr.Exit, now)
		cr.Previous = carryExit(cr.Previous, now)
		cr.Backoff.Updated = cr.Backoff.Updated.Carry(now)
		cr.Failure = carryFailure(cr.Failure, limits, now)
		rec.Containers[name] = cr
	}
	if s := rec.Stop; s != nil && s.Deadline.BootID != now.BootID {
		stop := *s
		stop.RequestedAt = s.RequestedAt.Carry(now)
		stop.Deadline = s.Deadline.CarryAhead(now, seconds(s.GraceSeconds))
		rec.Stop = &stop
	}
	return rec
}

func carryExit(e *pod.Exit, now pod.Stamp) *pod.Exit {
	if e == nil || e.At.BootID == now.BootID {
		return e
	}
	out := *e
	out.At = e.At.Carry(now)
	return &out
}

func carryFailure(f *pod.Failure, limits Limits, now pod.Stamp) *pod.Failure {
	if f == nil || f.Until.BootID == now.BootID {
		return f
	}
	longest := retryMax
	if isPullKey(f.Key) {
		longest = limits.PullMax
	}
	out := *f
	out.Since = f.Since.Carry(now)
	out.Until = f.Until.CarryAhead(now, longest)
	return &out
}
