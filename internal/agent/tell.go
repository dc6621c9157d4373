package agent

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/events"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/runtime/convert"
)

// metaBoot is the name under which the store keeps the ID of the last boot.
const metaBoot = "bootID"

func (a *Agent) nodeReference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.facts.Name}
}

// announce takes up the events of the agents before this one and adds its own.
func (a *Agent) announce() {
	if err := a.events.Load(a.store); err != nil {
		klog.ErrorS(err, "Cannot take up all events")
	}
	a.events.Add(a.nodeReference(), corev1.EventTypeNormal, "Starting", "Starting nodelet "+a.version)
	boot, err := a.store.Meta(metaBoot)
	if err == nil && len(boot) > 0 && string(boot) != a.facts.BootID {
		a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("The machine has been rebooted, boot id: %s", a.facts.BootID))
	}
	if err == nil && string(boot) != a.facts.BootID {
		err = a.store.PutMeta(metaBoot, []byte(a.facts.BootID))
	}
	if err != nil {
		klog.ErrorS(err, "Cannot remember the boot of the machine")
	}
}

// readiness is what was last told of the node.
type readiness int

const (
	readinessUnknown readiness = iota
	readinessYes
	readinessNo
)

// tellReadiness tells when pods can no longer be looked after, and when they can
// again.
func (a *Agent) tellReadiness(now time.Time) {
	err := a.pleg.Check(now)
	switch {
	case err != nil && a.ready != readinessNo:
		if a.ready == readinessUnknown && now.Sub(a.began) < housekeepingPeriod {
			return // the first look takes its time
		}
		a.ready = readinessNo
		a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "NodeNotReady",
			fmt.Sprintf("The container runtime at %s cannot be looked at: %v; running pods run on, nothing is started", a.cfg.ContainerRuntimeEndpoint, err))
	case err == nil && a.ready != readinessYes:
		a.ready = readinessYes
		a.events.Add(a.nodeReference(), corev1.EventTypeNormal, "NodeReady", "The container runtime at "+a.cfg.ContainerRuntimeEndpoint+" answers")
	}
}

func (a *Agent) event(p *corev1.Pod, container, kind, reason, message string) {
	a.events.Add(events.Pod(p, events.Container(&p.Spec, container)), kind, reason, message)
}

// warn tells the author of a pod about its sandbox. That there is no cluster DNS
// is not told: the usual policy asks for it, and one machine has none.
func (a *Agent) warn(p *corev1.Pod, w convert.Warning) {
	if w.Reason != convert.ReasonMissingClusterDNS {
		a.event(p, "", corev1.EventTypeWarning, w.Reason, w.Message)
	}
}

// problem tells what a source could not accept, on the object that it is about.
func (a *Agent) problem(p source.Problem) {
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: p.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name}
	reason := "FailedValidation" // upstream's word for whatever is wrong with an object
	switch {
	case ref.Name == "":
		ref, reason = a.nodeReference(), cmp.Or(p.Reason, reason)
	case p.Reason == "Duplicate": // nothing is wrong with the object itself
		reason = p.Reason
	}
	a.events.Add(ref, corev1.EventTypeWarning, reason, p.Message)
}

// waits tells what a pod has begun to wait for, as far as that is no failure,
// which has an event of its own for each try.
func (a *Agent) waits(p *corev1.Pod, before, now []pod.Wait) {
	known := map[pod.Wait]bool{}
	for _, w := range before {
		known[w] = true
	}
	for _, w := range now {
		if w.Reason == "PodInitializing" && !known[w] {
			a.event(p, w.Container, corev1.EventTypeNormal, w.Reason, "Waiting: "+w.Message)
		}
	}
}
