package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"nodelet.dev/nodelet/internal/pod"
)

// Input is everything that a status depends on.
type Input struct {
	Pod      *corev1.Pod
	Observed pod.Observation
	Record   pod.Record
	// Waits are the reasons that the newest plan gave.
	Waits []pod.Wait
	// HostIPs are the addresses of the node, primary first, at most two.
	HostIPs []string
	// Runtime is the name of the runtime, the scheme of container IDs.
	Runtime string
	Now     pod.Stamp
}

// Compute returns the status of the pod. Equal input gives an equal status.
func Compute(in Input) corev1.PodStatus {
	g := generator{Input: in, waits: map[string]pod.Wait{}}
	for _, w := range in.Waits {
		if _, taken := g.waits[w.Container]; !taken {
			g.waits[w.Container] = w
		}
	}
	g.active, g.hasSandbox = in.Observed.Newest()
	out := corev1.PodStatus{
		ObservedGeneration:         in.Pod.Generation,
		QOSClass:                   qos.GetPodQOS(in.Pod),
		InitContainerStatuses:      g.statuses(in.Pod.Spec.InitContainers),
		ContainerStatuses:          g.statuses(in.Pod.Spec.Containers),
		EphemeralContainerStatuses: g.ephemeral(),
	}
	sortByName(out.ContainerStatuses)
	sortByName(out.EphemeralContainerStatuses)
	if !in.Record.Started.IsZero() {
		start := metav1.NewTime(in.Record.Started.Wall).Rfc3339Copy()
		out.StartTime = &start
	}
	g.addresses(&out)
	out.Phase, out.Reason, out.Message = g.phase(out)
	out.Conditions = g.conditions(out)
	return out
}

type generator struct {
	Input
	waits      map[string]pod.Wait
	active     pod.Sandbox // the newest sandbox
	hasSandbox bool
}

// initialized reports whether the init containers are done for the newest
// sandbox. Without any sandbox, what was done last counts.
func (g *generator) initialized() bool {
	id := g.Record.Initialized.SandboxID
	return id != "" && (!g.hasSandbox || id == g.active.ID)
}

// addresses fills in host and pod addresses. Those of a dead sandbox are kept
// (ST-16); a pod on the host's network has the host's (ST-15).
func (g *generator) addresses(out *corev1.PodStatus) {
	for i, ip := range g.HostIPs {
		if i == 0 {
			out.HostIP = ip
		}
		out.HostIPs = append(out.HostIPs, corev1.HostIP{IP: ip})
	}
	ips := g.Record.Sandbox.IPs
	if g.Pod.Spec.HostNetwork && g.hasSandbox {
		ips = g.HostIPs
	}
	for i, ip := range ips {
		if i == 0 {
			out.PodIP = ip
		}
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
	}
}

// phase returns the pod phase with its reason and message. A terminal phase is
// told only once nothing can be running any more (INV-2).
func (g *generator) phase(out corev1.PodStatus) (phase corev1.PodPhase, reason, message string) {
	rec := &g.Record
	if rec.Outcome != nil && rec.Phase >= pod.PhaseTerminated {
		return rec.Outcome.Phase, rec.Outcome.Reason, rec.Outcome.Message
	}
	phase = Phase(&g.Pod.Spec, out.InitContainerStatuses, out.ContainerStatuses, g.initialized())
	if rec.RestartAll != nil && Terminal(phase) {
		phase = corev1.PodRunning // PH-14
	}
	if Terminal(phase) {
		phase = corev1.PodRunning
		if rec.Status != nil && rec.Status.Phase == corev1.PodPending {
			phase = corev1.PodPending
		}
	}
	switch w := g.waits[""]; w.Reason {
	case "", "ContainerCreating", "PodInitializing":
		message = g.held(out)
	default:
		reason, message = w.Reason, w.Message
	}
	return phase, reason, message
}

// held says why a container that runs is not yet what it should be, such as a
// swap whose image cannot be pulled: its own status has no place for it.
func (g *generator) held(out corev1.PodStatus) string {
	for _, w := range g.Waits {
		for _, list := range [][]corev1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses} {
			if s := find(list, w.Container); s != nil && s.State.Running != nil && w.Reason != "ContainerCreating" {
				return fmt.Sprintf("container %s goes on as it is: %s: %s", w.Container, w.Reason, w.Message)
			}
		}
	}
	return ""
}

// Terminal reports whether a phase is final.
func Terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
