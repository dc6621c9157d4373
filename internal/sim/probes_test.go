package sim

import (
	"slices"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// hear folds verdicts into the record, as package podworkers does.
func (k *worker) hear(verdicts map[string]pod.Verdicts) {
	for _, id := range sortedKeys(verdicts) {
		k.rec = plan.Probed(k.rec, k.observed, verdicts[id])
	}
	if len(verdicts) > 0 && k.wave != nil {
		k.publish()
		k.probe()
		k.write()
	}
}

func (k *worker) probe() {
	k.setProbes(plan.Probes(plan.ProbeInput{
		Pod: k.pod, Observed: k.observed, Record: k.rec, HostIPs: []string{"192.0.2.7"}, Now: k.w.stamp(),
	}))
}

func (k *worker) setProbes(targets []pod.ProbeTarget) {
	same := slices.EqualFunc(k.probing, targets, func(a, b pod.ProbeTarget) bool {
		return a.ContainerID == b.ContainerID && a.Kind == b.Kind
	})
	if same {
		return
	}
	for i := range targets {
		targets[i].Inherited = k.inherited[targets[i].ContainerID]
	}
	k.probing = targets
}
