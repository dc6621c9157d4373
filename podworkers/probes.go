package podworkers

import (
	"slices"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// hear folds verdicts into the record. What they change is published and acted
// on by the next plan, and while a wave is in flight at once: a stop that takes
// its whole grace must not hide that another container is ready, or is not. Then
// only the verdicts are new: what was seen since the last plan is not learned yet.
func (w *worker) hear(verdicts map[string]pod.Verdicts) {
	for _, v := range verdicts {
		w.rec = plan.Probed(w.rec, w.observed, v)
	}
	if len(verdicts) > 0 && w.wave != nil {
		w.publish(w.computed)
		w.probe()
	}
}

// tell reports the newest status. What the probes concluded is told once it is on
// disk: told before, the next agent could show a pod as ready that was seen to be
// sick, or the other way round (INV-10). A disk that takes nothing holds up
// nothing.
func (w *worker) tell() {
	w.held = w.failure == nil && probedElse(w.onDisk, w.rec)
	if w.held {
		return
	}
	w.deps.Sink.Publish(Report{
		Pod: w.pod, Status: w.rec.Status, Phase: w.rec.Phase, Waits: w.waits,
		Deletion: Deletion(w.rec), Plan: w.computed, Record: w.rec, Observed: w.observed,
	})
}

// tellHeld brings what is held to the disk, and tells it when it is there.
func (w *worker) tellHeld() {
	if w.held {
		w.write()
		w.tell()
	}
}

// probedElse reports whether two records hold other verdicts.
func probedElse(a, b pod.Record) bool {
	for name, cr := range b.Containers {
		if a.Containers[name].Probed != cr.Probed {
			return true
		}
	}
	return false
}

// probe asks the prober for what is to run now.
func (w *worker) probe() {
	w.setProbes(plan.Probes(plan.ProbeInput{
		Pod: w.pod, Observed: w.planned, Record: w.rec, HostIPs: w.deps.HostIPs, Now: w.deps.Now(),
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
