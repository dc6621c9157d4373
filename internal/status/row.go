package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Row is a pod in one line of a table, in the words that kubectl uses.
type Row struct {
	Ready    int // containers and sidecars that are ready
	Total    int
	Status   string
	Restarts int32
	Why      string // why it is not what it should be; empty when it is
}

// RowOf summarises a pod with its status.
func RowOf(p *corev1.Pod) Row {
	r := Row{Status: string(p.Status.Phase), Total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		r.Status = p.Status.Reason
	}
	r.Why = p.Status.Message
	initializing := r.inits(p)
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- { // the first one has the last word
		s := &p.Status.ContainerStatuses[i]
		r.Restarts += s.RestartCount
		if s.Ready {
			r.Ready++
		}
		if !initializing && !mute(p, s) {
			r.state(s)
		}
	}
	if p.Status.Phase == corev1.PodSucceeded && p.Status.Reason == "" {
		r.Status = "Completed"
	}
	if p.DeletionTimestamp != nil && !Terminal(p.Status.Phase) {
		r.Status = "Terminating"
	}
	return r
}

// inits looks at the init containers and reports whether the pod waits for one.
func (r *Row) inits(p *corev1.Pod) bool {
	waiting := false
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		r.Restarts += s.RestartCount
		spec, kind := pod.Find(&p.Spec, s.Name)
		if kind == pod.KindSidecar {
			r.Total++
			if s.Ready {
				r.Ready++
			}
		}
		if waiting || spec == nil || initDone(s, kind) || mute(p, s) {
			continue
		}
		waiting = true
		r.Status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "PodInitializing" && s.State.Waiting.Reason != "ContainerCreating":
			r.Status, r.Why = "Init:"+s.State.Waiting.Reason, because(s.Name, s.State.Waiting.Message)
		case s.State.Terminated != nil:
			r.Status, r.Why = "Init:"+endReason(s.State.Terminated), because(s.Name, s.State.Terminated.Message)
		}
	}
	return waiting
}

// mute reports whether a container says nothing about its pod: when the pod is
// over for a reason of its own, or before the container came to its turn.
func mute(p *corev1.Pod, s *corev1.ContainerStatus) bool {
	return Terminal(p.Status.Phase) && (p.Status.Reason != "" || s.State.Terminated == nil)
}

func initDone(s *corev1.ContainerStatus, kind pod.Kind) bool {
	if kind == pod.KindSidecar {
		return s.Started != nil && *s.Started || lastEnd(s) != nil
	}
	return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// state lets a container that is not running speak for its pod.
func (r *Row) state(s *corev1.ContainerStatus) {
	switch {
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		r.Status = s.State.Waiting.Reason
		r.Why = because(s.Name, s.State.Waiting.Message)
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		r.Status = endReason(s.State.Terminated)
		r.Why = because(s.Name, fmt.Sprintf("exit code %d %s", s.State.Terminated.ExitCode, s.State.Terminated.Message))
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	if t.Reason != "" {
		return t.Reason
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func because(name, message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return ""
	}
	return name + ": " + message
}
