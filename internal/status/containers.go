package status

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

func (g *generator) statuses(list []corev1.Container) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range list {
		out = append(out, g.container(&list[i]))
	}
	return out
}

func (g *generator) ephemeral() []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range g.Pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&g.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		out = append(out, g.container(c))
	}
	return out
}

// container returns the status of one container: its newest instance as the
// runtime shows it or, when that is gone, as it is remembered.
func (g *generator) container(c *corev1.Container) corev1.ContainerStatus {
	kind := pod.KindOf(&g.Pod.Spec, c.Name)
	cr := g.Record.Container(c.Name)
	inst, seen := g.Observed.Latest(c.Name)
	if cr.Exit != nil && cr.Exit.Attempt > inst.Attempt {
		seen = false
	}
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: int32(max(cr.Attempts, 1) - 1)} //nolint:gosec // attempts stay far below 2^31
	if seen {
		g.describe(&s, inst)
	}
	switch {
	case seen && inst.State == pod.StateRunning:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: second(inst.StartedAt)}
		s.LastTerminationState.Terminated = g.terminated(cr.Exit)
	case seen && inst.State == pod.StateUnknown && cr.Running == inst.ID:
		s.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: pod.ExitLost, Reason: pod.ReasonLost, Message: "The state of the container is unknown to the runtime",
			ContainerID: g.containerID(inst.ID),
		}
	case seen && (inst.State == pod.StateUnknown || inst.State == pod.StateCreated):
		s.State.Waiting = g.waiting(c, kind)
		s.LastTerminationState.Terminated = g.terminated(cr.Exit)
	default:
		g.ended(&s, c, kind, cr)
	}
	g.readiness(&s, c, kind, inst)
	return s
}

// ended fills in the state of a container without a live instance. One that is
// going to run again waits, with its end as the last state (ST-6).
func (g *generator) ended(s *corev1.ContainerStatus, c *corev1.Container, kind pod.Kind, cr pod.ContainerRecord) {
	exit, last := cr.Exit, cr.Previous
	if kind == pod.KindInit || kind == pod.KindSidecar {
		if exit != nil && g.hasSandbox && exit.SandboxID != g.active.ID && !g.initialized() {
			exit, last = nil, exit // an end in an older sandbox says nothing about this start
		}
	}
	if exit == nil {
		if kind == pod.KindInit && g.initialized() && cr.Previous == nil {
			// ST-5: it must have been done, although nobody remembers.
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
			return
		}
		s.State.Waiting = g.waiting(c, kind)
		s.LastTerminationState.Terminated = g.terminated(last)
		return
	}
	if w, ok := g.waits[c.Name]; ok && g.Record.Phase == pod.PhaseSyncing {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
		s.LastTerminationState.Terminated = g.terminated(exit)
		return
	}
	s.State.Terminated = g.terminated(exit)
	s.LastTerminationState.Terminated = g.terminated(last)
	s.ContainerID = g.containerID(exit.ContainerID)
	s.Image, s.ImageID = cmp.Or(exit.Image, s.Image), exit.ImageID
}

// describe copies what the runtime knows of an instance.
func (g *generator) describe(s *corev1.ContainerStatus, inst pod.Container) {
	s.ContainerID = g.containerID(inst.ID)
	s.ImageID = inst.ImageID
	if inst.Image != "" {
		s.Image = inst.Image
	}
	s.Resources = inst.Resources
	s.User = inst.User
}

func (g *generator) waiting(c *corev1.Container, kind pod.Kind) *corev1.ContainerStateWaiting {
	if w, ok := g.waits[c.Name]; ok {
		return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if g.Record.RestartAll != nil {
		return &corev1.ContainerStateWaiting{Reason: "RestartingAllContainers"}
	}
	if len(g.Pod.Spec.InitContainers) > 0 && !g.initialized() && kind != pod.KindEphemeral {
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

// readiness fills in started and ready (ST-8).
func (g *generator) readiness(s *corev1.ContainerStatus, c *corev1.Container, kind pod.Kind, inst pod.Container) {
	started := false
	switch {
	case kind == pod.KindEphemeral:
	case kind == pod.KindInit:
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		started = s.State.Running != nil
	case s.State.Running != nil:
		v := g.Record.Container(c.Name).Probed
		mine := v.ContainerID == inst.ID
		started = c.StartupProbe == nil || (mine && v.Startup == pod.Passed)
		s.Ready = started && (c.ReadinessProbe == nil || (mine && v.Readiness == pod.Passed))
	}
	s.Started = &started
}

func (g *generator) terminated(e *pod.Exit) *corev1.ContainerStateTerminated {
	if e == nil {
		return nil
	}
	return &corev1.ContainerStateTerminated{
		ExitCode:    e.ExitCode,
		Reason:      e.Reason,
		Message:     e.Message,
		StartedAt:   second(e.StartedAt),
		FinishedAt:  second(e.FinishedAt),
		ContainerID: g.containerID(e.ContainerID),
	}
}

func (g *generator) containerID(id string) string {
	if g.Runtime == "" {
		return id
	}
	return g.Runtime + "://" + id
}

func sortByName(list []corev1.ContainerStatus) {
	slices.SortStableFunc(list, func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
}
