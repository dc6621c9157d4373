package agent

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
)

// write stores something about a pod now, or again and again until it is stored:
// a disk that is full for a while must not leave a pod without a record. A later
// write about the same pod takes the place of an earlier one that failed.
func (d *desired) write(uid types.UID, what func() error) {
	began := time.Now()
	err := what()
	d.a.metrics.Written(time.Since(began), err != nil)
	if err != nil {
		klog.ErrorS(err, "Cannot store what is known of a pod; it is tried again", "podUID", uid)
		d.unwritten[uid] = what
	} else {
		delete(d.unwritten, uid)
	}
	d.a.unwritten.Store(int64(len(d.unwritten)))
}

// checkState says what the disk did not take: the newest write, or older ones
// that are still to be tried again.
func (a *Agent) checkState() error {
	err := a.store.Check()
	if n := a.unwritten.Load(); n > 0 && err == nil {
		err = fmt.Errorf("what is known of %d pods could not be stored and is tried again", n)
	}
	return err
}

// writeNew stores an instance that has no record yet. Until that succeeds its
// worker cannot store one either, so there is nothing to overwrite.
func (d *desired) writeNew(in pod.Instance) {
	d.write(in.UID(), func() error { return d.a.store.Put(in) })
}

// writeSpecs stores another version of an instance and leaves the record to its
// worker, unless the instance could not be stored so far.
func (d *desired) writeSpecs(in pod.Instance) {
	d.write(in.UID(), func() error {
		err := d.a.store.PutPod(in.User, in.Pod)
		if pod.ClassOf(err) == pod.ClassNotFound {
			return d.a.store.Put(in)
		}
		return err
	})
}

// writeAgain tries what could not be stored so far.
func (d *desired) writeAgain() {
	for uid, what := range d.unwritten {
		d.write(uid, what)
	}
}
