package pleg

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Kind says what happened to a container or sandbox.
type Kind uint8

// The kinds of events (PL-3).
const (
	Started Kind = iota + 1 // it runs now
	Died                    // it ended, or vanished before it was seen to end
	Removed                 // the runtime does not know it any more
	Changed                 // it went into a state that says little: created or unknown
)

// String returns the kind as a word.
func (k Kind) String() string {
	switch k {
	case Started:
		return "started"
	case Died:
		return "died"
	case Removed:
		return "removed"
	case Changed:
		return "changed"
	}
	return "nothing"
}

// Event is one difference between two listings.
type Event struct {
	UID  types.UID
	ID   string // of the container or sandbox
	Name string // of the container; empty for a sandbox
	Kind Kind
}

// Listing is what the runtime lists of all pods: states are what counts, other
// details may be missing.
type Listing map[types.UID]pod.Observation

// Diff compares two listings. The events of one pod stand together; pods are in
// order of UID, and within a pod in order of ID.
func Diff(old, now Listing) []Event {
	uids := make([]types.UID, 0, len(now))
	for uid := range now {
		uids = append(uids, uid)
	}
	for uid := range old {
		if _, still := now[uid]; !still {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	var events []Event
	for _, uid := range uids {
		events = append(events, DiffPod(uid, old[uid], now[uid])...)
	}
	return events
}

// DiffPod compares two observations of one pod.
func DiffPod(uid types.UID, old, now pod.Observation) []Event {
	before, after := states(old), states(now)
	var events []Event
	for id, a := range after {
		b, known := before[id]
		if known && b.state == a.state {
			continue
		}
		if kind := appeared(a.state); kind != 0 {
			events = append(events, Event{UID: uid, ID: id, Name: a.name, Kind: kind})
		}
	}
	for id, b := range before {
		if _, still := after[id]; still {
			continue
		}
		if b.state != pod.StateExited {
			events = append(events, Event{UID: uid, ID: id, Name: b.name, Kind: Died})
		}
		events = append(events, Event{UID: uid, ID: id, Name: b.name, Kind: Removed})
	}
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Kind, b.Kind))
	})
	return events
}

func appeared(s pod.State) Kind {
	switch s {
	case pod.StateRunning:
		return Started
	case pod.StateExited:
		return Died
	case pod.StateCreated, pod.StateUnknown:
		return Changed
	}
	return 0
}

type entry struct {
	name  string
	state pod.State
}

// states flattens an observation: a sandbox that is ready counts as running,
// another as exited (PL-2).
func states(o pod.Observation) map[string]entry {
	out := make(map[string]entry, len(o.Sandboxes)+len(o.Containers))
	for _, s := range o.Sandboxes {
		state := pod.StateExited
		if s.Ready {
			state = pod.StateRunning
		}
		out[s.ID] = entry{state: state}
	}
	for _, c := range o.Containers {
		out[c.ID] = entry{name: c.Name, state: c.State}
	}
	return out
}
