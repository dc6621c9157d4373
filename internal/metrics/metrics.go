package metrics

import (
	"net/http"
	goruntime "runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// maxScrapes is how many scrapes are answered at one time.
const maxScrapes = 4

// The values of the label container_type, which are the kubelet's.
const (
	TypeContainer = "container"
	TypeInit      = "init_container"
	TypeEphemeral = "ephemeral_container"
)

// The values of the label operation_type of kubelet_pod_worker_duration_seconds.
const (
	WorkCreate = "create" // until the pod has run for the first time
	WorkSync   = "sync"   // from then on
	WorkKill   = "kill"   // on its way out
)

// Options say what the agent is and how its state is looked at.
type Options struct {
	// Node is the name of the node, Version that of the agent.
	Node, Version string
	// Look returns the state of the node; it is called at each scrape. Nil means
	// that there is no state to show.
	Look func() State
}

// Metrics are the metrics of one agent. Its methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	operations      *prometheus.CounterVec
	operationErrors *prometheus.CounterVec
	operationTime   *prometheus.HistogramVec
	relistTime      prometheus.Histogram
	relistInterval  prometheus.Histogram
	workTime        *prometheus.HistogramVec
	podStart        prometheus.Histogram
	podStartSLI     prometheus.Histogram
	pods            prometheus.Counter
	podErrors       prometheus.Counter
	containers      *prometheus.CounterVec
	containerErrors *prometheus.CounterVec
	terminated      *prometheus.CounterVec
	pullTime        *prometheus.HistogramVec
	writeTime       prometheus.Histogram
	writeErrors     prometheus.Counter
	reloads         *prometheus.CounterVec
	events          *prometheus.CounterVec
	reasons         *bounded
}

// New returns metrics that start from nothing.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), reasons: newBounded(maxReasons)}
	m.makeKubelet()
	m.makeOwn()
	build := newGauges("nodelet_build_info", "What this program was built from; the value is always 1.", "version", "commit", "goversion")
	build.WithLabelValues(o.Version, commit(), goruntime.Version()).Set(1)
	node := newGauges("kubelet_node_name", "The name of this node; the value is always 1.", "node")
	node.WithLabelValues(o.Node).Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build, node,
		m.operations, m.operationErrors, m.operationTime, m.relistTime, m.relistInterval, m.workTime,
		m.podStart, m.podStartSLI, m.pods, m.podErrors, m.containers, m.containerErrors, m.terminated, m.pullTime,
		m.writeTime, m.writeErrors, m.reloads, m.events,
	)
	if o.Look != nil {
		m.registry.MustRegister(newStateCollector(o.Look))
	}
	return m
}

// makeKubelet makes what the kubelet has too.
func (m *Metrics) makeKubelet() {
	m.operations = newCounters("kubelet_runtime_operations_total",
		"Calls of the container runtime, by call.", "operation_type")
	m.operationErrors = newCounters("kubelet_runtime_operations_errors_total",
		"Calls of the container runtime that failed, by call.", "operation_type")
	m.operationTime = newHistograms("kubelet_runtime_operations_duration_seconds",
		"How long calls of the container runtime took, by call.", operationBuckets(), "operation_type")
	m.relistTime = newHistogram("kubelet_pleg_relist_duration_seconds",
		"How long it took to list all pods of the runtime.", prometheus.DefBuckets)
	m.relistInterval = newHistogram("kubelet_pleg_relist_interval_seconds",
		"From the start of the last listing of all pods that succeeded to the start of the next. It is a minute while the runtime sends events.", relistBuckets())
	m.workTime = newHistograms("kubelet_pod_worker_duration_seconds",
		"How long a pod worker took for one wave of actions and the look at the pod after it: create until the pod has run, sync from then on, kill on its way out.", prometheus.DefBuckets, "operation_type")
	m.podStart = newHistogram("kubelet_pod_start_duration_seconds",
		"From the start of a pod's worker to its phase Running. Pods that this agent adopted running are not counted.", startBuckets())
	m.podStartSLI = newHistogram("kubelet_pod_start_sli_duration_seconds",
		"From the start of a pod's worker to all its containers having started, without the time in which it waited for a registry or an init container ran.", startBuckets())
	m.pods = newCounter("kubelet_started_pods_total", "Attempts to make a pod sandbox.")
	m.podErrors = newCounter("kubelet_started_pods_errors_total", "Attempts to make a pod sandbox that failed.")
	m.containers = newCounters("kubelet_started_containers_total",
		"Attempts to make and start a container whose image was there.", "container_type")
	m.containerErrors = newCounters("kubelet_started_containers_errors_total",
		"Attempts to make and start a container that failed, by the reason in its status.", "container_type", "code")
	m.terminated = newCounters("kubelet_terminated_containers_total",
		"Containers that ended, by exit code.", "container_type", "exit_code")
	m.pullTime = newHistograms("kubelet_image_pull_duration_seconds",
		"How long pulls took that succeeded, without their wait for a turn, by the size of the image.", pullBuckets(), "image_size_in_bytes")
	for _, t := range []string{TypeContainer, TypeInit, TypeEphemeral} {
		m.containers.WithLabelValues(t)
	}
}

// makeOwn makes what only nodelet has.
func (m *Metrics) makeOwn() {
	m.writeTime = newHistogram("nodelet_state_write_duration_seconds",
		"How long writes of the durable state took.", writeBuckets())
	m.writeErrors = newCounter("nodelet_state_write_errors_total", "Writes of the durable state that failed.")
	m.reloads = newCounters("nodelet_config_reloads_total",
		"How often the configuration was loaded again, and whether it was applied or refused.", "result")
	m.events = newCounters("nodelet_events_total", "Events of pods and of the node, by type and reason.", "type", "reason")
	for _, result := range []string{resultApplied, resultRefused} {
		m.reloads.WithLabelValues(result)
	}
}

// Handler answers a scrape in the format that the client asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorLog: scrapeLog{},
		// A zstd encoder holds megabytes, more than all that it could save here.
		OfferedCompressions: []promhttp.Compression{promhttp.Identity, promhttp.Gzip},
	})
}

// scrapeLog takes what goes wrong at a scrape.
type scrapeLog struct{}

func (scrapeLog) Println(v ...any) { klog.InfoS("Cannot answer a scrape", "err", v) }

// Operation counts a call of the container runtime by its name in CRI, such as
// RunPodSandbox. Other names are left out.
func (m *Metrics) Operation(call string, took time.Duration, failed bool) {
	op := operationType(call)
	if op == "" {
		return
	}
	m.operations.WithLabelValues(op).Inc()
	m.operationTime.WithLabelValues(op).Observe(took.Seconds())
	if failed {
		m.operationErrors.WithLabelValues(op).Inc()
	}
}

// Relist counts a listing of all pods. interval is the time since the last one
// that succeeded, zero when there was none.
func (m *Metrics) Relist(took, interval time.Duration) {
	m.relistTime.Observe(took.Seconds())
	if interval > 0 {
		m.relistInterval.Observe(interval.Seconds())
	}
}

// Work counts a wave of actions: WorkCreate, WorkSync or WorkKill.
func (m *Metrics) Work(operation string, took time.Duration) {
	m.workTime.WithLabelValues(operation).Observe(took.Seconds())
}

// SandboxTried counts an attempt to make a sandbox.
func (m *Metrics) SandboxTried(failed bool) {
	m.pods.Inc()
	if failed {
		m.podErrors.Inc()
	}
}

// ContainerTried counts an attempt to make and start a container, and why it
// failed, if it did, in the word of the container status.
func (m *Metrics) ContainerTried(containerType, failure string) {
	m.containers.WithLabelValues(containerType).Inc()
	if failure != "" {
		m.containerErrors.WithLabelValues(containerType, failure).Inc()
	}
}

// ContainerEnded counts the end of a container.
func (m *Metrics) ContainerEnded(containerType string, exitCode int32) {
	m.terminated.WithLabelValues(containerType, exitText(exitCode)).Inc()
}

// PodRunning counts a pod that has come to run.
func (m *Metrics) PodRunning(took time.Duration) { m.podStart.Observe(took.Seconds()) }

// PodStarted counts a pod all of whose containers have started; took leaves out
// pulls and init containers.
func (m *Metrics) PodStarted(took time.Duration) { m.podStartSLI.Observe(took.Seconds()) }

// Pulled counts a pull that succeeded.
func (m *Metrics) Pulled(took time.Duration, sizeBytes int64) {
	m.pullTime.WithLabelValues(sizeText(sizeBytes)).Observe(took.Seconds())
}

// Written counts a write of the durable state.
func (m *Metrics) Written(took time.Duration, failed bool) {
	m.writeTime.Observe(took.Seconds())
	if failed {
		m.writeErrors.Inc()
	}
}

// The values of the label result.
const (
	resultApplied = "applied"
	resultRefused = "refused"
)

// Reloaded counts a configuration that was loaded again.
func (m *Metrics) Reloaded(refused bool) {
	result := resultApplied
	if refused {
		result = resultRefused
	}
	m.reloads.WithLabelValues(result).Inc()
}

// Event counts an event.
func (m *Metrics) Event(kind, reason string) {
	m.events.WithLabelValues(kind, m.reasons.keep(reason)).Inc()
}

// commit returns what the program was built from, as far as the build tells.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
