package plan_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

func oneIn(t *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

// drawPod draws a small pod with all kinds of containers, policies and probes.
func drawPod(t *rapid.T) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "uid-1"}}
	p.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
	}).Draw(t, "policy")
	for i := range rapid.IntRange(0, 3).Draw(t, "inits") {
		c := drawContainer(t, fmt.Sprintf("init%d", i))
		if oneIn(t, 2, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			drawProbes(t, &c)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		c := drawContainer(t, fmt.Sprintf("main%d", i))
		drawProbes(t, &c)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if oneIn(t, 4, "deadline") {
		n := rapid.Int64Range(30, 600).Draw(t, "seconds")
		p.Spec.ActiveDeadlineSeconds = &n
	}
	if oneIn(t, 3, "grace") {
		n := rapid.Int64Range(0, 60).Draw(t, "seconds")
		p.Spec.TerminationGracePeriodSeconds = &n
	}
	return p
}

func drawContainer(t *rapid.T, name string) corev1.Container {
	c := corev1.Container{Name: name, Image: name + ":1"}
	if !oneIn(t, 3, "own policy") {
		return c
	}
	policy := rapid.SampledFrom([]corev1.ContainerRestartPolicy{
		corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure,
	}).Draw(t, "policy")
	c.RestartPolicy = &policy
	if oneIn(t, 2, "rule") {
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: rapid.SampledFrom([]corev1.ContainerRestartRuleAction{
				corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers,
			}).Draw(t, "action"),
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
			},
		}}
	}
	return c
}

func drawProbes(t *rapid.T, c *corev1.Container) {
	for _, where := range []**corev1.Probe{&c.StartupProbe, &c.LivenessProbe} {
		if oneIn(t, 4, "probe") {
			*where = &corev1.Probe{}
		}
	}
}

// drawEdit draws a change that a running pod takes in place.
func drawEdit(t *rapid.T, old *corev1.Pod) *corev1.Pod {
	p := old.DeepCopy()
	switch rapid.IntRange(0, 2).Draw(t, "edit") {
	case 0:
		c := rapid.SampledFrom(append(pointers(p.Spec.InitContainers), pointers(p.Spec.Containers)...)).Draw(t, "of")
		c.Image = fmt.Sprintf("%s:%d", c.Name, rapid.IntRange(1, 3).Draw(t, "tag"))
	case 1:
		if n := len(p.Spec.EphemeralContainers); n < 2 {
			e := corev1.EphemeralContainer{}
			e.Name, e.Image = fmt.Sprintf("debug%d", n), "debug:1"
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, e)
		}
	case 2:
		if n := len(p.Spec.Containers); n > 1 {
			p.Spec.Containers = p.Spec.Containers[:n-1]
		}
	}
	return p
}

func pointers(list []corev1.Container) []*corev1.Container {
	var out []*corev1.Container
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

// drawFaults draws what goes wrong in the wave and the pulls of the last plan.
func (w *world) drawFaults(t *rapid.T) map[string]fault {
	faults := map[string]fault{}
	for _, a := range append(append([]string{}, names(w.last.Pulls)...), names(w.last.Wave)...) {
		if !oneIn(t, 3, "fault") {
			continue
		}
		f := fault{class: pod.Class(rapid.IntRange(1, int(pod.ClassConflict)).Draw(t, "class"))} //nolint:gosec // a small number
		f.landed = oneIn(t, 3, "landed")
		if oneIn(t, 4, "lies") {
			f = fault{idle: true}
		}
		faults[a] = f
	}
	return faults
}

// disturb changes the runtime behind the planner's back.
func (w *world) disturb(t *rapid.T) {
	if oneIn(t, 6, "lands") {
		w.land(t)
		return
	}
	if len(w.runtime.Containers) > 0 && oneIn(t, 2, "container") {
		i := rapid.IntRange(0, len(w.runtime.Containers)-1).Draw(t, "which")
		c := &w.runtime.Containers[i]
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			w.runtime.Containers = append(w.runtime.Containers[:i:i], w.runtime.Containers[i+1:]...)
		case 1:
			if c.State == pod.StateRunning {
				c.State = pod.StateUnknown
			}
		default:
			if c.State == pod.StateRunning || c.State == pod.StateUnknown {
				w.end(c, rapid.SampledFrom([]int32{0, 1, 42}).Draw(t, "code"))
				c.Reason = rapid.SampledFrom([]string{"Completed", "Error", "OOMKilled"}).Draw(t, "reason")
			}
		}
		return
	}
	if len(w.runtime.Sandboxes) > 0 {
		i := rapid.IntRange(0, len(w.runtime.Sandboxes)-1).Draw(t, "which")
		s := &w.runtime.Sandboxes[i]
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			s.Ready = false
		case 1:
			s.IPs = nil
		case 2:
			if !s.Ready {
				w.runtime.Sandboxes = append(w.runtime.Sandboxes[:i:i], w.runtime.Sandboxes[i+1:]...)
			}
		default:
		}
	}
}

// land makes something appear that nobody asked for just now: a call of an
// earlier agent that was still in flight, or a container that left the spec.
func (w *world) land(t *rapid.T) {
	attempt := uint32(rapid.IntRange(0, 5).Draw(t, "attempt")) //nolint:gosec // a small number
	if len(w.runtime.Sandboxes) == 0 || oneIn(t, 3, "sandbox") {
		if s := w.sandbox(attempt); !slices.ContainsFunc(w.runtime.Sandboxes, func(o pod.Sandbox) bool { return o.ID == s.ID }) {
			s.HostNetwork = oneIn(t, 5, "host network")
			w.runtime.Sandboxes = append(w.runtime.Sandboxes, s)
		}
		return
	}
	in := rapid.SampledFrom(w.runtime.Sandboxes).Draw(t, "in")
	name := rapid.SampledFrom([]string{"init0", "init1", "main0", "main1", "debug0", "gone"}).Draw(t, "name")
	c := w.container(name, fmt.Sprintf("%s-%d", name, attempt), in.ID, attempt)
	if slices.ContainsFunc(w.runtime.Containers, func(o pod.Container) bool { return o.ID == c.ID }) {
		return
	}
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		c.State = pod.StateCreated
	case 1:
		c.State, c.StartedAt = pod.StateRunning, w.now.Wall
	case 2:
		w.end(&c, 0)
		c.StartedAt = c.FinishedAt
	case 3:
		w.end(&c, 128)
		c.Reason = "StartError"
	}
	w.runtime.Containers = append(w.runtime.Containers, c)
}
