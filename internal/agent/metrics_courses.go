package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/metrics"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
)

// courses follow the pods that have a worker: how long they take to start, and
// what is being done to them now. The mutex guards them for a few lines at a time.
type courses struct {
	metrics *metrics.Metrics

	mu   sync.Mutex
	pods map[types.UID]*course
}

// course is the course of one pod.
type course struct {
	began time.Time // when this agent took it up
	ran   bool      // its phase was Running
	done  bool      // nothing is to be measured any more

	asking   map[string]time.Time // the containers for which a registry is asked, since when
	init     bool                 // an init container runs
	aside    time.Time            // since when one of these holds; zero when none does
	excluded time.Duration        // for how long one did

	acts  []plan.Action // of the wave under way
	since time.Time     // when it began
}

func newCourses(m *metrics.Metrics) *courses {
	return &courses{metrics: m, pods: map[types.UID]*course{}}
}

// begin takes up a pod whose worker is about to start. One that is beyond its
// start is not measured.
func (s *courses) begin(uid types.UID, phase corev1.PodPhase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[uid] = &course{began: time.Now(), ran: phase != corev1.PodPending, done: phase != corev1.PodPending, asking: map[string]time.Time{}}
}

func (s *courses) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// report measures a pod when it has come to run and when all its containers have.
func (s *courses) report(r podworkers.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pods[r.Pod.UID]
	if c == nil || c.done {
		return
	}
	now := time.Now()
	if r.Status.Phase == corev1.PodRunning && !c.ran {
		c.ran = true
		s.metrics.PodRunning(now.Sub(c.began))
	}
	c.init = initializes(r)
	c.weigh(now)
	switch {
	case over(r.Status.Phase) || r.Deletion != nil:
		c.done = true // it never had all of them
	case c.ran && allRun(r):
		c.done = true
		s.metrics.PodStarted(now.Sub(c.began) - c.excluded)
	}
}

// initializes reports whether an init container runs that others wait for.
func initializes(r podworkers.Report) bool {
	return slices.ContainsFunc(r.Status.InitContainerStatuses, func(st corev1.ContainerStatus) bool {
		return st.State.Running != nil && pod.KindOf(&r.Pod.Spec, st.Name) == pod.KindInit
	})
}

func allRun(r podworkers.Report) bool {
	return len(r.Status.ContainerStatuses) == len(r.Pod.Spec.Containers) &&
		!slices.ContainsFunc(r.Status.ContainerStatuses, func(st corev1.ContainerStatus) bool { return st.State.Running == nil })
}

// weigh sets the time aside that is not the agent's. Times that overlap count
// once.
func (c *course) weigh(now time.Time) {
	apart := c.init || len(c.asking) > 0
	switch {
	case apart && c.aside.IsZero():
		c.aside = now
	case !apart && !c.aside.IsZero():
		c.excluded += now.Sub(c.aside)
		c.aside = time.Time{}
	}
}

// pulls notes that a registry is asked for the image of a container, pulled that
// nobody waits for it any more.
func (s *courses) pulls(uid types.UID, container string) {
	s.change(uid, func(c *course) { c.asking[container] = time.Now() })
}

func (s *courses) pulled(uid types.UID, container string) {
	s.change(uid, func(c *course) { delete(c.asking, container) })
}

func (s *courses) change(uid types.UID, f func(*course)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.pods[uid]; c != nil {
		f(c)
		c.weigh(time.Now())
	}
}

// acts notes a wave that begins and returns what the kubelet would call it.
func (s *courses) acts(w podworkers.Wave) (operation string) {
	operation = metrics.WorkSync
	s.change(w.Pod.UID, func(c *course) {
		c.acts, c.since = w.Actions, time.Now()
		if !c.ran {
			operation = metrics.WorkCreate
		}
	})
	if w.Phase != pod.PhaseSyncing {
		operation = metrics.WorkKill
	}
	return operation
}

// rests notes that the wave is over.
func (s *courses) rests(uid types.UID) {
	s.change(uid, func(c *course) { c.acts, c.since = nil, time.Time{} })
}

// now returns what is being done to a pod.
func (s *courses) now(uid types.UID) (acts []plan.Action, since time.Time, asking map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pods[uid]
	if c == nil {
		return nil, time.Time{}, nil
	}
	return c.acts, c.since, maps.Clone(c.asking)
}
