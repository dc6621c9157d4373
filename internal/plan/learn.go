package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// reasonStartError is what containerd gives an instance that it could not start.
const reasonStartError = "StartError"

// learn folds an observation into the record: what was seen once is remembered
// when the runtime forgets it.
func learn(in Input) pod.Record {
	rec := carry(in.Record.Clone(), in.Limits, in.Now)
	learnSandboxes(&rec, in)
	for _, name := range namesToLearn(in) {
		rec.SetContainer(name, learnContainer(rec.Container(name), name, in))
	}
	return rec
}

func learnSandboxes(rec *pod.Record, in Input) {
	started := in.Now
	for _, s := range in.Observed.Sandboxes {
		rec.Sandbox.Attempts = max(rec.Sandbox.Attempts, s.Attempt+1)
		if at := pod.Back(s.CreatedAt, in.Now); at.Before(started) {
			started = at
		}
	}
	if rec.Started.IsZero() {
		rec.Started = started
	}
	newest, _ := in.Observed.Newest()
	if !newest.Ready {
		return
	}
	rec.Sandbox.Failure = nil
	if len(newest.IPs) > 0 {
		rec.Sandbox.IPs = newest.IPs
	}
	// INI-1: only a normal container of this very sandbox proves that the init
	// containers are done; a leftover of an older sandbox does not. Nor does one
	// that never ran: a request from before a restart of all containers may land
	// at any time.
	if slices.ContainsFunc(in.Observed.Containers, func(c pod.Container) bool {
		return c.SandboxID == newest.ID && c.State != pod.StateCreated && pod.KindOf(&in.Pod.Spec, c.Name) == pod.KindNormal
	}) {
		rec.Initialized = pod.Initialization{SandboxID: newest.ID, BootID: in.Now.BootID}
	}
}

// namesToLearn returns every container name that is remembered or visible, in
// a stable order.
func namesToLearn(in Input) []string {
	names := map[string]bool{}
	for name := range in.Record.Containers {
		names[name] = true
	}
	for _, c := range in.Observed.Containers {
		names[c.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func learnContainer(cr pod.ContainerRecord, name string, in Input) pod.ContainerRecord {
	newest, seen := in.Observed.Latest(name)
	if seen {
		cr.Attempts = max(cr.Attempts, newest.Attempt+1)
		cr.Retry = false // the number is taken, until that instance is gone
		switch newest.State {
		case pod.StateRunning:
			cr = learnRunning(cr, newest)
		case pod.StateExited:
			if !interrupted(cr, newest) {
				cr = learnExit(cr, exitOf(newest, in.Now))
			}
		case pod.StateCreated, pod.StateUnknown:
		}
	}
	if cr.Running != "" {
		if _, there := in.Observed.ByID(cr.Running); !there {
			cr = learnExit(cr, lostExit(cr, in.Now))
		}
	}
	return cr
}

func learnRunning(cr pod.ContainerRecord, c pod.Container) pod.ContainerRecord {
	if cr.Running != c.ID {
		cr.Running, cr.RunningIn = c.ID, c.SandboxID
		cr.Failure, cr.StopFailure = nil, nil
	}
	if cr.Replacing != c.ID {
		cr.Replacing = "" // the successor runs
	}
	return cr
}

// interrupted reports whether an instance never ran because the call that
// started it was cut off, which containerd shows as a start error. A start that
// the runtime refused was told to us, and is remembered. Without this, an agent
// that dies at the wrong moment would fail a pod that must not be run again.
func interrupted(cr pod.ContainerRecord, c pod.Container) bool {
	return c.Reason == reasonStartError && c.StartedAt.IsZero() &&
		cr.StartFailed != c.ID && (cr.Exit == nil || cr.Exit.ContainerID != c.ID) &&
		(cr.Previous == nil || cr.Previous.ContainerID != c.ID)
}

// learnExit remembers an end unless it is already known or older than what is.
func learnExit(cr pod.ContainerRecord, e pod.Exit) pod.ContainerRecord {
	if cr.Running == e.ContainerID {
		cr.Running, cr.RunningIn = "", ""
		cr.StopFailure = nil
	}
	if cr.Probed.ContainerID == e.ContainerID {
		cr.Probed = pod.Verdicts{} // it is void now
	}
	for _, known := range []*pod.Exit{cr.Exit, cr.Previous} {
		if known != nil && (known.ContainerID == e.ContainerID || known.Attempt > e.Attempt) {
			return cr
		}
	}
	if cr.Exit != nil {
		cr.Previous = cr.Exit
	}
	cr.Exit = &e
	return cr
}

func exitOf(c pod.Container, now pod.Stamp) pod.Exit {
	return pod.Exit{
		ContainerID: c.ID,
		SandboxID:   c.SandboxID,
		Attempt:     c.Attempt,
		ExitCode:    c.ExitCode,
		Reason:      c.Reason,
		Message:     c.Message,
		StartedAt:   c.StartedAt,
		FinishedAt:  c.FinishedAt,
		At:          pod.Back(c.FinishedAt, now),
		Image:       c.Image,
		ImageID:     c.ImageID,
	}
}

// lostExit stands for the end of an instance that ran and is gone.
func lostExit(cr pod.ContainerRecord, now pod.Stamp) pod.Exit {
	attempt := uint32(0)
	if cr.Attempts > 0 {
		attempt = cr.Attempts - 1
	}
	return pod.Exit{
		ContainerID: cr.Running,
		SandboxID:   cr.RunningIn,
		Attempt:     attempt,
		ExitCode:    pod.ExitLost,
		Reason:      pod.ReasonLost,
		Message:     "The container could not be located when the pod was inspected",
		FinishedAt:  now.Wall,
		At:          now,
	}
}

// failedExit reports whether an end counts as a failure (INI-7).
func failedExit(e *pod.Exit) bool {
	return e.ExitCode != 0 || e.Reason == "OOMKilled"
}

func podSucceeded(spec *corev1.PodSpec, rec *pod.Record) bool {
	for i := range spec.Containers {
		cr := rec.Container(spec.Containers[i].Name)
		if cr.Exit == nil || cr.Exit.ExitCode != 0 {
			return false
		}
	}
	return true
}
