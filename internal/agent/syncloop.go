package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/pleg"
	"nodelet.dev/nodelet/podworkers"
)

// Periods of the loop. Nothing depends on them: they are what catches a lost
// wake-up.
const (
	resyncPeriod       = 90 * time.Second
	housekeepingPeriod = 10 * time.Second
)

// syncLoop selects over everything that can change the node and dispatches it.
// Each round serves every channel that has something, once, so a flood on one
// cannot hold up another.
func (a *Agent) syncLoop(ctx context.Context) {
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	housekeeping := time.NewTicker(housekeepingPeriod)
	defer housekeeping.Stop()
	changes := a.pleg.Changes()
	for {
		select {
		case <-ctx.Done():
			return
		case set := <-a.sets:
			a.handleConfig(set)
		case <-changes.Wait():
			a.handleChanges(changes)
		case <-a.done.wake:
			a.handleFinished()
		case pods := <-a.inventories:
			a.handleInventory(pods)
		case <-a.reloaded:
			a.desired.admit()
		case <-resync.C:
			a.workers.Poke()
		case <-housekeeping.C:
			a.housekeep(ctx)
		}
		a.goneRound()
		a.serveWaiting(changes)
	}
}

// serveWaiting serves the channels that were ready beside the one that the
// select chose.
func (a *Agent) serveWaiting(changes *pleg.Changes) {
	select {
	case set := <-a.sets:
		a.handleConfig(set)
	default:
	}
	select {
	case <-a.done.wake:
		a.handleFinished()
	default:
	}
	select {
	case <-changes.Wait():
		a.handleChanges(changes)
	default:
	}
}

func (a *Agent) handleConfig(set source.Set) {
	klog.V(2).InfoS("SyncLoop SET", "source", set.Source, "pods", len(set.Pods), "problems", len(set.Problems))
	for _, c := range source.Diff(a.desired.sources[set.Source].Pods, set.Pods) {
		klog.V(2).InfoS("SyncLoop "+string(c.Op), "source", set.Source, "pods", klog.KObjSlice(c.Pods))
	}
	a.desired.apply(set)
	a.publishSources()
}

func (a *Agent) handleChanges(changes *pleg.Changes) {
	for _, c := range changes.Take() {
		klog.V(3).InfoS("SyncLoop PLEG", "podUID", c.UID, "events", len(c.Events))
		a.desired.seen(c.UID, c.Observed)
	}
	// A pod that its worker saw come, and that went before the PLEG looked, is in
	// no change: its worker learns from the listing that nothing is left.
	if listed := changes.TakeListed(); listed != nil {
		a.workers.Each(func(uid types.UID, box *podworkers.Mailbox) {
			if !listed.UIDs[uid] {
				box.PutObservation(pod.Observation{TakenAt: listed.TakenAt})
			}
		})
	}
}

func (a *Agent) handleFinished() {
	for _, uid := range a.done.take() {
		a.desired.finished(uid)
	}
	a.desired.admit()
}

func (a *Agent) handleInventory(pods map[types.UID]pod.Observation) {
	a.desired.inventory(pods)
	a.publishSources()
}

// finishedSet collects the UIDs of finished pods until syncLoop takes them.
type finishedSet struct {
	wake chan struct{} // one token

	mu   sync.Mutex // guards uids for a few lines at a time
	uids []types.UID
}

func newFinishedSet() *finishedSet { return &finishedSet{wake: make(chan struct{}, 1)} }

func (f *finishedSet) put(uid types.UID) {
	f.mu.Lock()
	f.uids = append(f.uids, uid)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *finishedSet) take() []types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.uids
	f.uids = nil
	return out
}
