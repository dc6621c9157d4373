package pod

import "fmt"

// Phase is where a worker is in the life of its pod. It moves one way only
// (PW-2). It is not the pod phase that the status shows.
type Phase uint8

// The phases, in order.
const (
	PhaseSyncing     Phase = iota // bring the pod to its spec and keep it there
	PhaseTerminating              // stop everything; nothing is started any more
	PhaseTerminated               // nothing runs; release what the pod held
	PhaseFinished                 // nothing is left to do for this UID, ever
)

// String returns the phase in lower case.
func (p Phase) String() string {
	switch p {
	case PhaseSyncing:
		return "syncing"
	case PhaseTerminating:
		return "terminating"
	case PhaseTerminated:
		return "terminated"
	case PhaseFinished:
		return "finished"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// To returns the phase after a transition to next. Staying is allowed, as is
// one step forward; anything else is a bug and panics.
func (p Phase) To(next Phase) Phase {
	if next != p && next != p+1 {
		panic(fmt.Sprintf("PW-2: illegal transition %v -> %v", p, next))
	}
	return next
}
