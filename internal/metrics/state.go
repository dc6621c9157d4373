package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what is counted when somebody asks.
type State struct {
	// Desired are the pods that the sources want, Active those that count towards
	// maxPods: all but the ones that ran to their end.
	Desired, Active int
	// RunningPods are the pods that have a ready sandbox.
	RunningPods int
	// Containers are the instances in the runtime, by state: running, exited,
	// created or unknown.
	Containers map[string]int
	// Working are the pods that have a worker.
	Working map[Working]int
	// Waits are the reasons for which pods or their containers wait.
	Waits   map[string]int
	Sources map[string]Source
	// PullsWaiting are the pulls that wait for their turn.
	PullsWaiting int
	// Listed is when the newest listing of all pods that succeeded began; zero for
	// never.
	Listed time.Time
}

// Working is where pods with a worker are.
type Working struct {
	// Lifecycle is sync, terminating or terminated.
	Lifecycle string
	// Config is desired, or orphan for pods that no source wants any more.
	Config string
}

// Source is one source of pods.
type Source struct {
	Pods, Problems int
}

// stateCollector shows the state at each scrape.
type stateCollector struct {
	look    func() State
	reasons *bounded

	desired, active, runningPods, containers, working, listed *prometheus.Desc

	waits, sourcePods, sourceProblems, pullsWaiting *prometheus.Desc
}

func newStateCollector(look func() State) *stateCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &stateCollector{
		look: look, reasons: newBounded(maxReasons),
		desired:        desc("kubelet_desired_pods", "Pods that the sources want. All of them are static: none comes from an API server.", "static"),
		active:         desc("kubelet_active_pods", "Pods that count towards maxPods: all but those that ran to their end.", "static"),
		runningPods:    desc("kubelet_running_pods", "Pods that have a ready sandbox."),
		containers:     desc("kubelet_running_containers", "Container instances that the runtime has of these pods, by state.", "container_state"),
		working:        desc("kubelet_working_pods", "Pods that have a worker, by where they are in their life and whether a source still wants them.", "lifecycle", "config", "static"),
		listed:         desc("kubelet_pleg_last_seen_seconds", "Unix time at which the newest listing of all pods that succeeded began."),
		waits:          desc("nodelet_pod_waits", "Reasons for which a pod or a container is not yet what it should be.", "reason"),
		sourcePods:     desc("nodelet_source_pods", "Pods in the newest set of a source.", "source"),
		sourceProblems: desc("nodelet_source_problems", "What a source cannot accept at present.", "source"),
		pullsWaiting:   desc("nodelet_pulls_waiting", "Pulls that wait for their turn."),
	}
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.desired, c.active, c.runningPods, c.containers, c.working, c.listed, c.waits, c.sourcePods, c.sourceProblems, c.pullsWaiting,
	} {
		out <- d
	}
}

// static is the value of the label of that name: what comes from no API server.
const static = "true"

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	s := c.look()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.desired, float64(s.Desired), static)
	gauge(c.active, float64(s.Active), static)
	gauge(c.runningPods, float64(s.RunningPods))
	for _, state := range []string{"running", "exited", "created", "unknown"} {
		gauge(c.containers, float64(s.Containers[state]), state)
	}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			gauge(c.working, float64(s.Working[Working{lifecycle, config}]), lifecycle, config, static)
		}
	}
	if !s.Listed.IsZero() {
		gauge(c.listed, float64(s.Listed.UnixNano())/1e9)
	}
	waits := map[string]int{} // two reasons may both be other
	for reason, n := range s.Waits {
		waits[c.reasons.keep(reason)] += n
	}
	for reason, n := range waits {
		gauge(c.waits, float64(n), reason)
	}
	for name, source := range s.Sources {
		gauge(c.sourcePods, float64(source.Pods), name)
		gauge(c.sourceProblems, float64(source.Problems), name)
	}
	gauge(c.pullsWaiting, float64(s.PullsWaiting))
}
