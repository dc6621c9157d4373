package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
)

// board holds the newest report of each worker, for whoever wants to read it.
type board struct {
	mu      sync.Mutex // guards the maps for a few lines at a time
	reports map[types.UID]podworkers.Report
	waiting map[pod.Key]podworkers.Report // pods that have no worker yet
}

func newBoard() *board {
	return &board{reports: map[types.UID]podworkers.Report{}, waiting: map[pod.Key]podworkers.Report{}}
}

// put shows a report and returns the one that it takes the place of.
func (b *board) put(r podworkers.Report) (before podworkers.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before = b.reports[r.Pod.UID]
	b.reports[r.Pod.UID] = r
	return before
}

// has reports whether a pod has a worker.
func (b *board) has(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.reports[uid]
	return ok
}

// count returns how many pods there are.
func (b *board) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.reports) + len(b.waiting)
}

// ended reports whether a pod ran to its end.
func (b *board) ended(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.reports[uid].Status
	return st != nil && (st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed)
}

func (b *board) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reports, uid)
}

// pending shows a pod that waits for the runtime to be listed.
func (b *board) pending(user *corev1.Pod) {
	b.hold(user, pod.Wait{Reason: "RuntimeNotReady", Message: "the container runtime has not listed its pods yet"})
}

// hold shows a pod that has no worker yet, and why.
func (b *board) hold(user *corev1.Pod, w pod.Wait) {
	r := podworkers.Report{
		Pod: user, Waits: []pod.Wait{w},
		Status: &corev1.PodStatus{Phase: corev1.PodPending, Reason: w.Reason, Message: w.Message},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[pod.KeyOf(user)] = r
}

func (b *board) drop(key pod.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, key)
}

// snapshot returns all reports, ordered by key and then by age.
func (b *board) snapshot() []podworkers.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]podworkers.Report, 0, len(b.reports)+len(b.waiting))
	for _, r := range b.reports {
		out = append(out, r)
	}
	for _, r := range b.waiting {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y podworkers.Report) int {
		return cmp.Or(pod.KeyOf(x.Pod).Compare(pod.KeyOf(y.Pod)),
			x.Pod.CreationTimestamp.Compare(y.Pod.CreationTimestamp.Time), cmp.Compare(x.Pod.UID, y.Pod.UID))
	})
	return out
}

// working returns the reports of the pods that have a worker.
func (b *board) working() []podworkers.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.reports))
}

// held returns the reports of the pods that have no worker yet.
func (b *board) held() []podworkers.Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.waiting))
}

// podList returns the pods with their status, as the API shows them.
func (b *board) podList() *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, r := range b.snapshot() {
		p := *r.Pod
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		if r.Status != nil {
			p.Status = *r.Status
		}
		if d := r.Deletion; d != nil && p.DeletionTimestamp == nil {
			// As the API shows it: when the grace is used up.
			p.DeletionTimestamp = &metav1.Time{Time: d.Deadline.Wall}
			p.DeletionGracePeriodSeconds = &d.GraceSeconds
		}
		list.Items = append(list.Items, p)
	}
	return list
}
