package agent

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
)

// reasonOutOfPods is the kubelet's reason for a pod beyond maxPods. There it is
// final; here the pod waits.
const reasonOutOfPods = "OutOfpods"

// await makes the pod of a key one that admit starts.
func (d *desired) await(key pod.Key) {
	if _, known := d.waiting[key]; !known {
		d.waiting[key] = false
	}
}

// admit starts the pods that wait for room, ordered by key, while there are fewer
// than maxPods. Those that are there already are never ended for it.
func (d *desired) admit() {
	if len(d.waiting) == 0 {
		return
	}
	limit := int(d.a.live.Load().MaxPods)
	taken := d.taken()
	for _, key := range slices.SortedFunc(maps.Keys(d.waiting), pod.Key.Compare) {
		e := d.entries[key]
		if e == nil || e.user == nil || e.current != nil || d.busy(key) {
			delete(d.waiting, key)
			continue
		}
		if taken >= limit {
			d.hold(key, e.user, limit)
			continue
		}
		taken++
		delete(d.waiting, key)
		d.start(e, e.user, source.Apply(nil, e.user, d.newUID(e.user)), pod.Record{})
	}
}

// admitFirst starts the pod that waits under a key before others do: it takes the
// place of the instance that has just ended.
func (d *desired) admitFirst(key pod.Key) {
	e := d.entries[key]
	if _, waits := d.waiting[key]; !waits || e == nil || e.user == nil || e.current != nil || d.busy(key) {
		return
	}
	if d.taken() >= int(d.a.live.Load().MaxPods) {
		return
	}
	delete(d.waiting, key)
	d.start(e, e.user, source.Apply(nil, e.user, d.newUID(e.user)), pod.Record{})
}

// taken counts the instances that use something: all but those that ran to their
// end.
func (d *desired) taken() int {
	n := 0
	for uid := range d.byUID {
		if !d.a.board.ended(uid) {
			n++
		}
	}
	return n
}

// hold shows a pod that waits for room, and tells once why.
func (d *desired) hold(key pod.Key, user *corev1.Pod, limit int) {
	why := pod.Wait{Reason: reasonOutOfPods, Message: fmt.Sprintf("cannot start Pod %s: maxPods is %d, and as many are there; it starts when one of them has ended", key, limit)}
	d.a.board.hold(user, why)
	if told := d.waiting[key]; !told {
		d.waiting[key] = true
		klog.InfoS("A pod waits for room", "pod", klog.KObj(user), "maxPods", limit)
		d.a.event(user, "", corev1.EventTypeWarning, why.Reason, why.Message)
	}
}
