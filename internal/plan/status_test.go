package plan_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/status"
)

// status publishes as the worker does, and prints: the row of a table, the pod,
// the conditions with their times, and each container.
func (w *world) status() string {
	st := status.Compute(status.Input{
		Pod: w.pod, Observed: w.snapshot(), Record: w.rec, Waits: w.last.Why, Now: w.now,
	})
	w.rec.Status = &st
	p := w.pod.DeepCopy()
	p.Status = st
	row := status.RowOf(p)
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d %s restarts=%d", row.Ready, row.Total, row.Status, row.Restarts)
	if row.Why != "" {
		fmt.Fprintf(&b, " (%s)", row.Why)
	}
	fmt.Fprintf(&b, "\n%s", st.Phase)
	for _, part := range []string{st.Reason, st.PodIP} {
		if part != "" {
			b.WriteString(" " + part)
		}
	}
	b.WriteString("\n")
	for _, c := range st.Conditions {
		fmt.Fprintf(&b, "%s=%s %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format("15:04:05"))
		if c.Reason != "" {
			b.WriteString(" " + c.Reason)
		}
		b.WriteString("\n")
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			fmt.Fprintf(&b, "%s: %s ready=%v started=%v restarts=%d last=%s\n", s.Name, stateText(s.State), s.Ready, *s.Started, s.RestartCount, stateText(s.LastTerminationState))
		}
	}
	return b.String()
}

func stateText(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running since " + s.Running.StartedAt.UTC().Format("15:04:05")
	case s.Waiting != nil:
		return strings.TrimSpace("waiting " + s.Waiting.Reason)
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d) of %s", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.ContainerID)
	}
	return "none"
}
