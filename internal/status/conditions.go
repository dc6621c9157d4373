package status

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// AllContainersRestarting is the condition of a restart of all containers (RR-7).
const AllContainersRestarting corev1.PodConditionType = "AllContainersRestarting"

// Reasons of conditions.
const (
	reasonPodCompleted = "PodCompleted"
	reasonPodFailed    = "PodFailed"
)

func second(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }

// conditions returns the conditions in their order (CON-1). Those of other
// owners come first and are not touched (CON-10).
func (g *generator) conditions(out corev1.PodStatus) []corev1.PodCondition {
	containers := g.containersReady(out)
	own := []corev1.PodCondition{
		g.readyToStart(),
		g.initializedCondition(out),
		g.ready(containers),
		containers,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	if r := g.Record.RestartAll; r != nil {
		own = append(own, corev1.PodCondition{
			Type: AllContainersRestarting, Status: corev1.ConditionTrue, Reason: "RestartAllContainersStarted",
			Message: fmt.Sprintf("the exit of container %s restarts all containers", r.Trigger),
		})
	}
	var list []corev1.PodCondition
	if g.Record.Status != nil {
		for _, c := range g.Record.Status.Conditions {
			if !ours(c.Type) {
				list = append(list, c)
			}
		}
	}
	for _, c := range own {
		c.ObservedGeneration = out.ObservedGeneration
		c.LastTransitionTime = g.transition(c)
		list = append(list, c)
	}
	return list
}

func ours(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled, AllContainersRestarting:
		return true
	default:
		return false
	}
}

// transition keeps the time of a condition whose status did not change (CON-9).
func (g *generator) transition(c corev1.PodCondition) metav1.Time {
	if g.Record.Status != nil {
		for _, old := range g.Record.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
				return old.LastTransitionTime
			}
		}
	}
	return second(g.Now.Wall)
}

// readyToStart is CON-2: the sandbox is there and has an address.
func (g *generator) readyToStart() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	if g.active.Ready && (g.Pod.Spec.HostNetwork || len(g.active.IPs) > 0) {
		c.Status = corev1.ConditionTrue
	}
	return c
}

// initializedCondition is CON-3.
func (g *generator) initializedCondition(out corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if out.Phase == corev1.PodSucceeded {
		c.Reason = reasonPodCompleted
		return c
	}
	for i := range out.ContainerStatuses {
		s := &out.ContainerStatuses[i]
		if s.State.Running != nil || lastEnd(s) != nil {
			return c // a normal container has started, so they were done
		}
	}
	var incomplete []string
	for i := range g.Pod.Spec.InitContainers {
		s := &out.InitContainerStatuses[i]
		done := s.Ready
		if pod.IsSidecar(&g.Pod.Spec.InitContainers[i]) {
			done = *s.Started
		}
		if !done {
			incomplete = append(incomplete, s.Name)
		}
	}
	if len(incomplete) > 0 {
		c.Status = corev1.ConditionFalse
		c.Reason = "ContainersNotInitialized"
		c.Message = "containers with incomplete status: [" + strings.Join(incomplete, " ") + "]"
	}
	return c
}

// containersReady is CON-4: all normal containers and sidecars are ready.
func (g *generator) containersReady(out corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch out.Phase {
	case corev1.PodSucceeded:
		c.Reason = reasonPodCompleted
		return c
	case corev1.PodFailed:
		c.Reason = reasonPodFailed
		return c
	default:
	}
	var unready []string
	for i := range g.Pod.Spec.InitContainers {
		if s := &out.InitContainerStatuses[i]; pod.IsSidecar(&g.Pod.Spec.InitContainers[i]) && !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	for i := range out.ContainerStatuses {
		if s := &out.ContainerStatuses[i]; !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	if len(unready) > 0 {
		c.Reason = "ContainersNotReady"
		c.Message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// ready is CON-5: the containers are ready and every readiness gate is open.
func (g *generator) ready(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range g.Pod.Spec.ReadinessGates {
		if !g.gateOpen(gate.ConditionType) {
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q is not \"True\"", gate.ConditionType))
		}
	}
	if len(closed) > 0 {
		c.Status = corev1.ConditionFalse
		c.Reason = "ReadinessGatesNotReady"
		c.Message = strings.Join(closed, ", ")
	}
	return c
}

func (g *generator) gateOpen(t corev1.PodConditionType) bool {
	if g.Record.Status == nil {
		return false
	}
	for _, c := range g.Record.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
