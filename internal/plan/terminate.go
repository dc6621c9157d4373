package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// terminate plans for a pod that is to end: containers stop in order within one
// shared grace, then the sandboxes (TRM rows). Nothing is started (INV-3).
func (b *builder) terminate() {
	if b.stopContainers() {
		return
	}
	if b.removeCreated() {
		return
	}
	if b.stopSandboxes() {
		return
	}
	b.decideOutcome()
	b.enter(pod.PhaseTerminated)
	b.clean()
}

// stopContainers plans the stops whose turn it is: everything but sidecars at
// once, then each sidecar when all before it are gone, the last started first
// (TRM-6, INV-9). When the grace is used up, nobody waits for anybody (TRM-8).
func (b *builder) stopContainers() bool {
	left := b.rec.Stop.Deadline.Until(b.Now)
	busy := false
	for _, c := range b.Observed.Containers {
		if !live(c) {
			continue
		}
		busy = true
		if left > 0 && !b.mayStop(c) {
			continue
		}
		b.stop(c, left, "Stopping container "+c.Name)
	}
	if busy {
		b.wait("", "Terminating", fmt.Sprintf("stopping containers, %ds of grace left", wholeSeconds(left)))
		if left > 0 {
			b.wake(b.rec.Stop.Deadline)
		}
	}
	return busy
}

// mayStop reports whether the turn of a container has come. Order is by
// instance, so a duplicate of one name cannot release the sidecars.
func (b *builder) mayStop(c pod.Container) bool {
	rank := b.sidecarRank(c.Name)
	if rank < 0 {
		return true
	}
	for _, other := range b.Observed.Containers {
		if !live(other) || pod.KindOf(&b.Pod.Spec, other.Name) == pod.KindEphemeral {
			continue
		}
		if r := b.sidecarRank(other.Name); r < 0 || r > rank {
			return false
		}
	}
	return true
}

// sidecarRank returns the position of a sidecar in the start order, or -1 for
// any other container.
func (b *builder) sidecarRank(name string) int {
	for i := range b.Pod.Spec.InitContainers {
		if c := &b.Pod.Spec.InitContainers[i]; c.Name == name && pod.IsSidecar(c) {
			return i
		}
	}
	return -1
}

// removeCreated removes instances that were created and never ran: a start that
// is still in flight in the runtime must find nothing.
func (b *builder) removeCreated() bool {
	busy := false
	for _, c := range b.Observed.Containers {
		if c.State != pod.StateCreated {
			continue
		}
		busy = true
		b.remove(c, "")
	}
	return busy
}

func (b *builder) remove(c pod.Container, message string) {
	if f := b.rec.Container(c.Name).StopFailure; b.held(f) {
		b.wait(c.Name, f.Reason, f.Message)
		return
	}
	b.do(Action{Op: OpRemoveContainer, Container: c.Name, ID: c.ID, Message: message})
}

// decideOutcome settles the terminal phase by how the normal containers ended.
// Sidecars have no say (PH-9). Once settled it stays (INV-2).
func (b *builder) decideOutcome() {
	if b.rec.Outcome != nil {
		return
	}
	out := pod.Outcome{Phase: corev1.PodFailed}
	if podSucceeded(&b.Pod.Spec, &b.rec) {
		out.Phase = corev1.PodSucceeded
	}
	if b.rec.Stop != nil {
		out.Reason, out.Message = b.rec.Stop.Reason, b.rec.Stop.Message
	}
	b.rec.Outcome = &out
}

// clean releases what an ended pod holds. A pod that left the desired set is
// removed without a trace; another keeps its dead containers and their logs.
func (b *builder) clean() {
	if b.Observed.Live() {
		// Something that was in flight landed late: down with it.
		if !b.stopContainers() {
			b.stopSandboxes()
		}
		return
	}
	gone := true
	if !b.rec.Stop.Delete {
		gone = false
	} else if len(b.Observed.Containers)+len(b.Observed.Sandboxes) > 0 {
		gone = false
		b.removeAll()
	}
	if !b.rec.TornDown {
		gone = false
		if f := b.rec.VolumesFailure; b.held(f) {
			b.wait("", f.Reason, f.Message)
		} else {
			b.do(Action{Op: OpTearDownVolumes})
		}
	}
	if gone {
		b.enter(pod.PhaseFinished)
	}
}

// removeAll removes the containers, and then the sandboxes.
func (b *builder) removeAll() {
	for _, c := range b.Observed.Containers {
		b.remove(c, "")
	}
	if len(b.Observed.Containers) > 0 {
		return
	}
	for _, s := range b.Observed.Sandboxes {
		if f := b.rec.Sandbox.StopFailure; b.held(f) {
			b.wait("", f.Reason, f.Message)
			continue
		}
		b.do(Action{Op: OpRemoveSandbox, ID: s.ID})
	}
}
