package status

import (
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Phase derives the phase of a pod from its container statuses alone, by the
// rules PH-1 to PH-9 in their order.
func Phase(spec *corev1.PodSpec, inits, containers []corev1.ContainerStatus, initialized bool) corev1.PodPhase {
	var t tally
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if pod.IsSidecar(c) {
			t.sidecar(find(inits, c.Name), initialized)
		} else {
			t.init(spec, c, find(inits, c.Name))
		}
	}
	for i := range spec.Containers {
		t.normal(spec, &spec.Containers[i], find(containers, spec.Containers[i].Name))
	}
	switch {
	case t.initFailed > 0:
		return corev1.PodFailed
	case t.pending > 0 || t.running+t.stopped == 0:
		return corev1.PodPending
	case t.running > 0 || t.restartable > 0:
		return corev1.PodRunning
	case t.stopped == t.succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// tally counts the containers of a pod by what they mean for its phase. One
// whose state nobody knows counts as pending.
type tally struct {
	initFailed, pending, running    int
	stopped, succeeded, restartable int
}

// init counts a plain init container (PH-1, PH-2).
func (t *tally) init(spec *corev1.PodSpec, c *corev1.Container, s *corev1.ContainerStatus) {
	ended := lastEnd(s)
	switch {
	case ended == nil:
		t.pending++
	case s.State.Waiting != nil && ended.ExitCode == 0:
		t.pending++ // done before, and to be done again in another sandbox
	case ended.ExitCode != 0 && !pod.RestartsAfter(spec, c, ended.ExitCode) && ended.Reason != "RestartingAllContainers":
		t.initFailed++
	case ended.ExitCode != 0:
		t.pending++ // it is going to be tried again
	}
}

// sidecar counts a restartable init container: running counts as running,
// never having run as waiting; how it ended never matters (PH-2, PH-3, PH-9).
func (t *tally) sidecar(s *corev1.ContainerStatus, initialized bool) {
	switch {
	case s == nil || s.State == (corev1.ContainerState{}):
		t.pending++
	case s.State.Running != nil:
		t.running++
		if !initialized && (s.Started == nil || !*s.Started) {
			t.pending++
		}
	case s.State.Waiting != nil && s.LastTerminationState.Terminated == nil:
		t.pending++
	}
}

// normal counts a normal container (PH-3 to PH-8).
func (t *tally) normal(spec *corev1.PodSpec, c *corev1.Container, s *corev1.ContainerStatus) {
	ended := lastEnd(s)
	switch {
	case s != nil && s.State.Running != nil:
		t.running++
		return
	case ended == nil:
		t.pending++
		return
	}
	t.stopped++
	if ended.ExitCode == 0 {
		t.succeeded++
	}
	if pod.RestartsAfter(spec, c, ended.ExitCode) {
		t.restartable++
	}
}

// lastEnd returns how a container that does not run ended last, if ever.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s == nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	}
	return nil
}

func find(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
