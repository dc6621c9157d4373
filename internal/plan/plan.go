package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Input is everything a decision depends on.
type Input struct {
	Pod      *corev1.Pod
	Observed pod.Observation
	Record   pod.Record
	// ActedAt is when the last wave ended. An older observation is refused
	// (INV-13); it has a monotonic reading, as Observation.TakenAt has.
	ActedAt time.Time
	Now     pod.Stamp
	Limits  Limits
}

// Limits are the delays that an administrator may set.
type Limits struct {
	BackoffInitial time.Duration // first restart delay (C-12)
	BackoffMax     time.Duration // longest restart delay (C-12)
	BackoffReset   time.Duration // an entry older than this starts anew (C-13)
	PullInitial    time.Duration // first delay after a failed pull (C-14)
	PullMax        time.Duration // longest delay after a failed pull (C-14)
}

// DefaultLimits are the kubelet's values.
func DefaultLimits() Limits {
	return Limits{
		BackoffInitial: 10 * time.Second,
		BackoffMax:     300 * time.Second,
		BackoffReset:   10 * time.Minute,
		PullInitial:    10 * time.Second,
		PullMax:        300 * time.Second,
	}
}

// Op is what an action does.
type Op uint8

// The operations. Each is one call to the runtime or to the volumes.
const (
	OpSetUpVolumes Op = iota + 1
	OpCreateSandbox
	OpCreateContainer
	OpStartContainer
	OpStopContainer
	OpKillContainer // SIGKILL past the runtime, when stopping keeps failing
	OpRemoveContainer
	OpStopSandbox
	OpRemoveSandbox
	OpTearDownVolumes
	OpPullImage
)

// String returns the operation as transcripts and logs write it.
func (o Op) String() string {
	names := [...]string{
		"none", "set-up-volumes", "create-sandbox", "create-container", "start-container", "stop-container",
		"kill-container", "remove-container", "stop-sandbox", "remove-sandbox", "tear-down-volumes", "pull-image",
	}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Action is one thing to do now.
type Action struct {
	Op Op
	// Container is the name of the container, empty for sandboxes and volumes.
	Container string
	// ID is the container or sandbox acted upon. For OpCreateContainer it is the
	// sandbox to create it in.
	ID string
	// Attempt is the number of the sandbox or container to make. The runtime
	// reserves names by it, so a stale plan fails instead of making a second one.
	Attempt uint32
	// Image is the image as the spec has it (pull) or as it was resolved (create).
	Image string
	// GraceSeconds is the time between the stop signal and the kill.
	GraceSeconds int64
	// Message says why, for the Killing event.
	Message string
}

// String returns the action in one line.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(a.Op.String())
	for _, part := range []string{a.Container, a.ID} {
		if part != "" {
			b.WriteString(" " + part)
		}
	}
	switch a.Op {
	case OpCreateSandbox, OpCreateContainer:
		fmt.Fprintf(&b, " attempt=%d", a.Attempt)
	case OpStopContainer:
		fmt.Fprintf(&b, " grace=%ds", a.GraceSeconds)
	case OpPullImage:
		fmt.Fprintf(&b, " %s attempt=%d", a.Image, a.Attempt)
	default:
	}
	if a.Message != "" {
		fmt.Fprintf(&b, " (%s)", a.Message)
	}
	return b.String()
}

// Event is something that happened by decision, to be told to the user.
type Event struct {
	Container string
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Message   string
}

// Plan is the answer of Compute.
type Plan struct {
	// Wave are the actions to run now, side by side; only starts run one after
	// another, in the order given. When the wave is over the pod is inspected
	// and computed again.
	Wave []Action
	// Pulls are all the images that are wanted now, one action per container.
	// They run beside the waves: a slow pull of one container does not hold up
	// another. A pull that is no longer listed is to be cancelled.
	Pulls []Action
	// InspectFirst says that the observation is missing or stale; everything else
	// in the plan is empty then, except the record as it was.
	InspectFirst bool
	// Record is what to remember. It is to be stored before the wave runs.
	Record pod.Record
	// WakeAt is when to compute again if nothing happens; zero means never.
	WakeAt pod.Stamp
	Why    []pod.Wait
	Events []Event
}

// Result is how an action ended.
type Result struct {
	Action Action
	Err    error
	// Image is what the runtime resolved a pulled image to.
	Image string
}

// String describes the plan in lines, for transcripts and the state dump.
func (p Plan) String() string {
	if p.InspectFirst {
		return "inspect first\n"
	}
	var b strings.Builder
	for _, list := range [][]Action{p.Pulls, p.Wave} {
		for _, a := range list {
			fmt.Fprintf(&b, "%v\n", a)
		}
	}
	for _, w := range p.Why {
		fmt.Fprintf(&b, "wait %s\n", strings.Join(strings.Fields(w.Container+" "+w.Reason+" "+w.Message), " "))
	}
	for _, e := range p.Events {
		fmt.Fprintf(&b, "event %s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	return b.String()
}
