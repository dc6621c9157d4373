package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// housekeep ends what runs and belongs to nobody (PW-30), and looks after what
// was left on disk. It does nothing while everything is known.
func (a *Agent) housekeep(ctx context.Context) {
	a.tellReadiness(time.Now())
	a.desired.writeAgain()
	a.desired.endStrays()
	a.desired.admit() // a pod that ran to its end makes room
	if !a.desired.ready() || !a.desired.listed {
		return
	}
	left, err := a.volumes.Leftovers()
	if err != nil {
		klog.V(2).InfoS("Cannot look for directories of vanished pods", "err", err)
		return
	}
	for _, uid := range left {
		if _, known := a.desired.byUID[uid]; known {
			continue
		}
		if _, stray := a.desired.strays[uid]; stray {
			continue
		}
		if err := a.volumes.TearDown(ctx, uid); err != nil {
			a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "FailedUnMount", err.Error())
		}
	}
}
