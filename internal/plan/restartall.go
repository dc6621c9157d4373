package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// restartAll plans a restart of all containers in place, and reports whether
// one is under way: the containers are stopped and removed, normal ones first
// and the one that asked for it last (RR-6); sandbox, addresses and volumes
// stay. When nothing is left the pod starts like a new one in its sandbox.
func (b *builder) restartAll() bool {
	if b.rec.RestartAll == nil {
		trigger := b.restartAllTrigger()
		if trigger == nil {
			return false
		}
		b.rec.RestartAll = trigger
		b.event(trigger.Trigger, corev1.EventTypeNormal, "RestartingAllContainers",
			fmt.Sprintf("Container %s exited with a code that restarts all containers of the pod", trigger.Trigger))
	}
	b.wait("", "RestartingAllContainers", "the exit of container "+b.rec.RestartAll.Trigger+" restarts all containers")
	if b.stopForRestartAll() || b.removeForRestartAll() {
		return true
	}
	b.forgetExits()
	return false
}

// restartAllTrigger finds a container whose newest end in the active sandbox
// asks for a restart of all (RR-5). An end that was acted on is forgotten by
// forgetExits, so it cannot trigger twice (RR-9).
func (b *builder) restartAllTrigger() *pod.RestartAll {
	for _, list := range [][]corev1.Container{b.Pod.Spec.Containers, b.Pod.Spec.InitContainers} {
		for i := range list {
			c := &list[i]
			e := b.rec.Container(c.Name).Exit
			if e == nil || e.SandboxID != b.active.ID {
				continue
			}
			if action, _ := pod.MatchRule(c, e.ExitCode); action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return &pod.RestartAll{Trigger: c.Name, TriggerID: e.ContainerID, Started: b.Now}
			}
		}
	}
	return nil
}

// stopForRestartAll stops the normal containers, then the init containers.
func (b *builder) stopForRestartAll() bool {
	for _, init := range []bool{false, true} {
		busy := false
		for _, c := range b.restartAllTargets() {
			isInit := c.Kind == pod.KindInit || c.Kind == pod.KindSidecar
			if live(c) && isInit == init {
				busy = true
				b.stop(c, 0, fmt.Sprintf("Container %s is restarted with all containers of the pod", c.Name))
			}
		}
		if busy {
			return true
		}
	}
	return false
}

// removeForRestartAll removes the stopped containers; their logs stay.
func (b *builder) removeForRestartAll() bool {
	for _, source := range []bool{false, true} {
		busy := false
		for _, c := range b.restartAllTargets() {
			if (c.Name == b.rec.RestartAll.Trigger) == source {
				busy = true
				b.remove(c, "")
			}
		}
		if busy {
			return true
		}
	}
	return false
}

func (b *builder) restartAllTargets() []pod.Container {
	var targets []pod.Container
	for _, c := range b.Observed.Containers {
		c.Kind = pod.KindOf(&b.Pod.Spec, c.Name)
		if c.SandboxID == b.active.ID && c.Kind != pod.KindEphemeral {
			targets = append(targets, c)
		}
	}
	return targets
}

// forgetExits makes every container count as one that never ended, so that the
// pod starts anew; the ends become last states, and still delay restarts.
func (b *builder) forgetExits() {
	for name, cr := range b.rec.Containers {
		if cr.Exit != nil && pod.KindOf(&b.Pod.Spec, name) != pod.KindEphemeral {
			cr.Previous, cr.Exit = cr.Exit, nil
			b.rec.SetContainer(name, cr)
		}
	}
	b.rec.Initialized = pod.Initialization{}
	b.rec.RestartAll = nil
}
