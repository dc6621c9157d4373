package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Probed returns the record with verdicts about one container instance folded
// in. Verdicts about an instance that is not the newest of its name are too late
// and count for nothing (INV-10).
func Probed(rec pod.Record, o pod.Observation, v pod.Verdicts) pod.Record {
	about, ok := o.ByID(v.ContainerID)
	if newest, _ := o.Latest(about.Name); !ok || newest.ID != about.ID {
		return rec
	}
	cr := rec.Container(about.Name)
	merged := cr.Probed.Merge(v)
	if merged == cr.Probed {
		return rec
	}
	cr.Probed = merged
	rec = rec.Clone()
	rec.SetContainer(about.Name, cr)
	return rec
}

// ProbeInput is everything that the choice of probes depends on.
type ProbeInput struct {
	Pod      *corev1.Pod
	Observed pod.Observation
	Record   pod.Record
	// HostIPs are the addresses of the node, primary first.
	HostIPs []string
	Now     pod.Stamp
}

// Probes returns the probes that are to run now, in spec order. A container is
// probed while it runs, other than for its start only once that has succeeded
// (PRB-11), and no longer for what was decided (PRB-7). While the pod ends, only
// its readiness is told (TRM-16).
func Probes(in ProbeInput) []pod.ProbeTarget {
	if in.Record.Phase > pod.PhaseTerminating {
		return nil
	}
	var targets []pod.ProbeTarget
	for _, list := range [][]corev1.Container{in.Pod.Spec.InitContainers, in.Pod.Spec.Containers} {
		for i := range list {
			if c := &list[i]; pod.HasProbes(c) {
				targets = append(targets, in.of(c)...)
			}
		}
	}
	return targets
}

// of returns the probes that are to run on one container.
func (in *ProbeInput) of(c *corev1.Container) []pod.ProbeTarget {
	inst, _ := in.Observed.Latest(c.Name)
	if inst.State != pod.StateRunning {
		return nil
	}
	cr := in.Record.Container(c.Name)
	v := cr.Probed
	if v.ContainerID != inst.ID {
		v = pod.Verdicts{ContainerID: inst.ID}
	}
	// One that is being stopped may fail for that: it is not to be judged again.
	staying := in.Record.Stop == nil && cr.Replacing != inst.ID
	var kinds []pod.ProbeKind
	switch {
	case c.StartupProbe != nil && v.Startup != pod.Passed:
		if staying && v.Startup == pod.NoVerdict {
			kinds = append(kinds, pod.Startup)
		}
	default:
		if c.LivenessProbe != nil && staying && v.Liveness != pod.Failed {
			kinds = append(kinds, pod.Liveness)
		}
		if c.ReadinessProbe != nil {
			kinds = append(kinds, pod.Readiness)
		}
	}
	targets := make([]pod.ProbeTarget, 0, len(kinds))
	for _, kind := range kinds {
		targets = append(targets, pod.ProbeTarget{
			Container: c, ContainerID: inst.ID, Kind: kind, IP: in.address(), Age: in.age(inst), Known: v.Of(kind),
		})
	}
	return targets
}

func (in *ProbeInput) address() string {
	ips := in.Record.Sandbox.IPs
	if in.Pod.Spec.HostNetwork {
		ips = in.HostIPs
	}
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}

func (in *ProbeInput) age(c pod.Container) time.Duration {
	if c.StartedAt.IsZero() {
		return 0
	}
	return pod.Back(c.StartedAt, in.Now).Since(in.Now)
}
