package sim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/pleg"
)

const relistPeriod = 30 * time.Second

// seen dispatches what the PLEG saw.
func (a *agent) seen(uid types.UID, o pod.Observation) {
	if k := a.workers[uid]; k != nil {
		k.putObservation(o)
		return
	}
	if o.TakenAt.Before(a.gone[uid]) {
		return // it was taken before the pod was finished
	}
	if len(o.Sandboxes)+len(o.Containers) == 0 {
		delete(a.strays, uid)
		return
	}
	a.strays[uid] = o
}

// hinted looks at a pod soon: an event came in.
func (a *agent) hinted(uid types.UID) {
	if a.looking[uid] {
		return
	}
	a.looking[uid] = true
	a.w.after(a.w.chaos.eventDelay(), func() {
		if a.alive() {
			delete(a.looking, uid)
			a.look(uid)
		}
	})
}

// look inspects a pod and reports it when it changed.
func (a *agent) look(uid types.UID) {
	a.w.machine.inspect(&scope{}, uid, inspectTimeout, func(o pod.Observation, err error) {
		if !a.alive() {
			return
		}
		if err != nil {
			a.w.after(time.Second, func() {
				if a.alive() {
					a.look(uid)
				}
			})
			return
		}
		if len(pleg.DiffPod(uid, a.last[uid], o)) == 0 && a.last[uid].TakenAt.Before(o.TakenAt) && !a.differs(uid, o) {
			a.last[uid] = o
			return
		}
		if a.last[uid].TakenAt.Before(o.TakenAt) {
			a.last[uid] = o
		}
		a.w.after(a.w.chaos.eventDelay(), func() {
			if a.alive() {
				a.seen(uid, o)
			}
		})
	})
}

// relist compares what the runtime lists with what was seen last.
func (a *agent) relist() {
	if !a.alive() {
		return
	}
	a.w.after(relistPeriod, a.relist)
	if a.w.machine.down {
		return
	}
	if !a.listed {
		a.listed = true
		for _, uid := range a.w.machine.uids() {
			a.last[uid] = a.w.machine.snapshot(uid)
			a.seen(uid, a.last[uid])
		}
		for _, key := range sortedByKey(a.entries) {
			a.settle(key, a.entries[key])
		}
	}
	now := pleg.Listing{}
	for _, uid := range a.w.machine.uids() {
		now[uid] = a.w.machine.snapshot(uid)
	}
	for _, e := range pleg.Diff(a.last, now) {
		a.hinted(e.UID)
	}
	// What belongs to no worker may have been reported to one that was about to go.
	for _, uid := range sortedKeys(now) {
		if a.workers[uid] == nil {
			a.seen(uid, now[uid])
		}
	}
	// A worker may know more than the PLEG has ever seen: what it saw appear may
	// be gone again before the next listing.
	for _, uid := range sortedKeys(a.workers) {
		if a.differs(uid, now[uid]) {
			a.hinted(uid)
		}
	}
	a.endStrays()
}

// differs says that a worker's view of its pod is not what was seen now.
func (a *agent) differs(uid types.UID, o pod.Observation) bool {
	k := a.workers[uid]
	return k != nil && len(pleg.DiffPod(uid, k.observed, o)) > 0
}
