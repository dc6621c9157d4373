package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// normal plans the normal containers, side by side; starts keep spec order.
// When none of them runs or is to run, the pod is over (CPA-16).
func (b *builder) normal() {
	over := true
	for i := range b.Pod.Spec.Containers {
		c := &b.Pod.Spec.Containers[i]
		if b.ensure(c) {
			over = false
		}
	}
	if over {
		b.decideOutcome()
		b.finish()
	}
}

// ensure plans what one long-lived container needs. It returns false when the
// container is done for good.
func (b *builder) ensure(c *corev1.Container) bool {
	inst, seen := b.Observed.LatestIn(b.active.ID, c.Name)
	cr := b.rec.Container(c.Name)
	if !seen || (cr.Exit != nil && cr.Exit.Attempt > inst.Attempt) {
		return b.start(c) // the newest instance ended and is already pruned
	}
	switch inst.State {
	case pod.StateUnknown:
		// INV-1: it may still run, so it goes before another comes (CPA-10).
		// Under Never it may have run, so it does not run again (INV-7).
		if pod.RestartPolicy(&b.Pod.Spec, c) != corev1.RestartPolicyNever {
			b.markReplaced(c, inst)
		}
		b.stop(inst, seconds(pod.GracePeriod(b.Pod)), fmt.Sprintf("Container %s is in unknown state", c.Name))
		return true
	case pod.StateRunning:
		b.keep(c, inst)
		return true
	case pod.StateCreated:
		b.startCreated(c, inst)
		return true
	case pod.StateExited:
		if interrupted(cr, inst) {
			b.startOver(c, inst)
			return true
		}
	}
	return b.start(c)
}

// startOver removes an instance whose start was interrupted. Its number is used
// once more: nothing ran under it.
func (b *builder) startOver(c *corev1.Container, inst pod.Container) {
	cr := b.rec.Container(c.Name)
	cr.Retry = true
	b.rec.SetContainer(c.Name, cr)
	b.remove(inst, "its start was interrupted")
}

// keep plans for a running container: a swap when its definition changed, a
// restart when a probe failed, else nothing.
func (b *builder) keep(c *corev1.Container, inst pod.Container) {
	grace := seconds(pod.GracePeriod(b.Pod))
	if !pod.SameHash(inst.Hash, pod.ContainerHash(c)) {
		// the old instance keeps running until the new image is there.
		if !b.image(c) {
			return
		}
		b.markReplaced(c, inst)
		b.stop(inst, grace, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name))
		return
	}
	v := b.rec.Container(c.Name).Probed
	if v.ContainerID != inst.ID {
		return
	}
	switch {
	case v.Liveness == pod.Failed && c.LivenessProbe != nil:
		b.probeKill(c, inst, c.LivenessProbe, "liveness")
	case v.Startup == pod.Failed && c.StartupProbe != nil:
		b.probeKill(c, inst, c.StartupProbe, "startup")
	}
}

// probeKill plans the end of an instance that failed a probe. Unless its policy
// is Never another one follows, however this one ends (CPA-12).
func (b *builder) probeKill(c *corev1.Container, inst pod.Container, probe *corev1.Probe, kind string) {
	grace := pod.GracePeriod(b.Pod)
	if probe.TerminationGracePeriodSeconds != nil {
		grace = *probe.TerminationGracePeriodSeconds
	}
	message := fmt.Sprintf("Container %s failed %s probe", c.Name, kind)
	if pod.RestartPolicy(&b.Pod.Spec, c) != corev1.RestartPolicyNever {
		b.markReplaced(c, inst)
		message += ", will be restarted"
	}
	b.stop(inst, seconds(grace), message)
}

func (b *builder) markReplaced(c *corev1.Container, inst pod.Container) {
	cr := b.rec.Container(c.Name)
	cr.Replacing = inst.ID
	b.rec.SetContainer(c.Name, cr)
}

// startCreated starts an instance that was created and never ran, or removes it
// when it was made from another definition: the agent may have died in between.
func (b *builder) startCreated(c *corev1.Container, inst pod.Container) {
	if !pod.SameHash(inst.Hash, pod.ContainerHash(c)) {
		b.remove(inst, "its definition changed before it ran")
		return
	}
	if b.stillLive(c.Name) {
		return
	}
	if f := b.rec.Container(c.Name).Failure; b.held(f) {
		b.wait(c.Name, f.Reason, f.Message)
		return
	}
	b.do(Action{Op: OpStartContainer, Container: c.Name, ID: inst.ID})
}

// start plans the next instance of a container that does not run. It returns
// false when the container is not to run again.
func (b *builder) start(c *corev1.Container) bool {
	cr := b.rec.Container(c.Name)
	if !b.runsAgain(c, cr) {
		return b.stillLive(c.Name)
	}
	if b.stillLive(c.Name) || !b.backoffOver(c) {
		return true
	}
	b.create(c)
	return true
}

// stillLive reports whether an instance of the container has yet to be stopped;
// no other one starts before (INV-1).
func (b *builder) stillLive(name string) bool {
	return slices.ContainsFunc(b.Observed.Containers, func(c pod.Container) bool { return c.Name == name && live(c) })
}

// create plans the next instance once its image is there and the volumes are.
func (b *builder) create(c *corev1.Container) {
	ready := b.setUpVolumesOnce()
	if !b.image(c) || !ready {
		return
	}
	cr := b.rec.Container(c.Name)
	if f := cr.Failure; b.held(f) {
		b.wait(c.Name, f.Reason, f.Message)
		return
	}
	b.wait(c.Name, "ContainerCreating", "")
	b.do(Action{Op: OpCreateContainer, Container: c.Name, ID: b.active.ID, Attempt: cr.Next(), Image: cr.Pulled.Ref})
}

// setUpVolumesOnce is setUpVolumes for many containers: one action is enough.
func (b *builder) setUpVolumesOnce() bool {
	if slices.ContainsFunc(b.plan.Wave, func(a Action) bool { return a.Op == OpSetUpVolumes }) {
		return false
	}
	return b.setUpVolumes()
}

// image wants the image of the container's next instance and reports whether it
// is there.
func (b *builder) image(c *corev1.Container) bool {
	cr := b.rec.Container(c.Name)
	if p := cr.Pulled; p.Image == c.Image && p.Attempt == cr.Next() {
		return true
	}
	if f := cr.Failure; f != nil && f.Key == pullKey(c.Image) && b.held(f) {
		b.wait(c.Name, f.Reason, f.Message)
		return false
	}
	b.wait(c.Name, "ContainerCreating", "")
	b.plan.Pulls = append(b.plan.Pulls, Action{Op: OpPullImage, Container: c.Name, Image: c.Image, Attempt: cr.Next()})
	return false
}

// strays stops what must not run in a pod whose sandbox is good: containers
// that the spec does not have, and instances that are not the newest of
// their name in the active sandbox (INV-1, INV-17).
func (b *builder) strays() {
	grace := seconds(pod.GracePeriod(b.Pod))
	for _, c := range b.Observed.Containers {
		if !live(c) {
			continue
		}
		newest, _ := b.Observed.LatestIn(b.active.ID, c.Name)
		cr := b.rec.Container(c.Name)
		switch {
		case pod.KindOf(&b.Pod.Spec, c.Name) == pod.KindUnknown:
			b.stop(c, grace, fmt.Sprintf("Container %s is not part of the pod any more", c.Name))
		case newest.ID != c.ID || (cr.Exit != nil && cr.Exit.Attempt > c.Attempt):
			b.stop(c, grace, fmt.Sprintf("Container %s has a newer instance", c.Name))
		}
	}
}

// ephemeral starts each ephemeral container once; their state holds up nothing
// (CPA-8).
func (b *builder) ephemeral() {
	for i := range b.Pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&b.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		inst, _ := b.Observed.Latest(c.Name)
		switch {
		case inst.State == pod.StateCreated && inst.SandboxID == b.active.ID:
			b.startCreated(c, inst)
		case interrupted(b.rec.Container(c.Name), inst):
			b.startOver(c, inst)
		case b.rec.Container(c.Name).Attempts == 0 || b.rec.Container(c.Name).Retry:
			b.create(c)
		}
	}
}
