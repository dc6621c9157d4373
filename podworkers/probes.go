package podworkers

import (
	"slices"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// hear folds verdicts into the record. What they change is published and acted
// on by the next plan, and while a wave is in flight at once: a stop that takes
// its whole grace must not hide that another container is ready, or is not.
func (w *worker) hear(verdicts map[string]pod.Verdicts) {
	for _, v := range verdicts {
		w.rec = plan.Probed(w.rec, w.observed, v)
	}
	if len(verdicts) > 0 && w.wave != nil {
		w.publish(w.computed)
		w.probe()
		w.write()
	}
}

// probe asks the prober for what is to run now.
func (w *worker) probe() {
	w.setProbes(plan.Probes(plan.ProbeInput{
		Pod: w.pod, Observed: w.observed, Record: w.rec, HostIPs: w.deps.HostIPs, Now: w.deps.Now(),
	}))
}

// setProbes tells the prober when something changed.
func (w *worker) setProbes(targets []pod.ProbeTarget) {
	same := slices.EqualFunc(w.probing, targets, func(a, b pod.ProbeTarget) bool {
		return a.ContainerID == b.ContainerID && a.Kind == b.Kind
	})
	if same {
		return
	}
	for i := range targets {
		targets[i].Inherited = w.inherited[targets[i].ContainerID]
	}
	w.probing = targets
	w.deps.Prober.Set(w.pod, targets, w.box)
}
