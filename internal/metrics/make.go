package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func newCounters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func newGauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func newHistogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func newHistograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Buckets in seconds. Those of the kubelet's metrics are the kubelet's, but for
// relists: with its steps up to ten seconds, the minute that usually lies between
// two would be in none.
func operationBuckets() []float64 { return prometheus.ExponentialBuckets(.005, 2.5, 14) }

func relistBuckets() []float64 {
	return append(append([]float64{}, prometheus.DefBuckets...), 30, 60, 90, 120, 300)
}

func startBuckets() []float64 {
	return []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func pullBuckets() []float64 {
	return []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func writeBuckets() []float64 { return prometheus.ExponentialBuckets(.0005, 2, 15) }

// operationType returns the kubelet's word for a call of CRI, or nothing.
func operationType(call string) string {
	switch call {
	case "Version":
		return "version"
	case "Status":
		return "status"
	case "RunPodSandbox":
		return "run_podsandbox"
	case "StopPodSandbox":
		return "stop_podsandbox"
	case "RemovePodSandbox":
		return "remove_podsandbox"
	case "PodSandboxStatus":
		return "podsandbox_status"
	case "ListPodSandbox":
		return "list_podsandbox"
	case "CreateContainer":
		return "create_container"
	case "StartContainer":
		return "start_container"
	case "StopContainer":
		return "stop_container"
	case "RemoveContainer":
		return "remove_container"
	case "ListContainers":
		return "list_containers"
	case "ContainerStatus":
		return "container_status"
	case "ImageStatus":
		return "image_status"
	case "PullImage":
		return "pull_image"
	}
	return ""
}

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// sizeText returns the kubelet's word for the size of an image.
func sizeText(bytes int64) string {
	steps := []struct {
		below int64
		text  string
	}{
		{10 * mebibyte, "0-10MB"},
		{100 * mebibyte, "10MB-100MB"},
		{500 * mebibyte, "100MB-500MB"},
		{gibibyte, "500MB-1GB"},
		{5 * gibibyte, "1GB-5GB"},
		{10 * gibibyte, "5GB-10GB"},
		{20 * gibibyte, "10GB-20GB"},
		{30 * gibibyte, "20GB-30GB"},
		{40 * gibibyte, "30GB-40GB"},
		{60 * gibibyte, "40GB-60GB"},
		{100 * gibibyte, "60GB-100GB"},
	}
	for _, s := range steps {
		if bytes < s.below {
			return s.text
		}
	}
	return "GT100GB"
}

// exitText returns an exit code as a label. A process ends with 0 to 255; what a
// runtime makes up beyond that is one value.
func exitText(code int32) string {
	if code < 0 || code > 255 {
		return other
	}
	return strconv.Itoa(int(code))
}

// maxReasons is how many values a label of reasons has at most. All of them are
// words of the code, of which there are fewer.
const maxReasons = 100

// other stands for what is beyond a bound.
const other = "other"

// bounded keeps the first values that it is given; later ones are other.
type bounded struct {
	most int

	mu   sync.Mutex // guards seen for a few lines at a time
	seen map[string]bool
}

func newBounded(most int) *bounded { return &bounded{most: most, seen: map[string]bool{}} }

func (b *bounded) keep(value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[value] {
		return value
	}
	if len(b.seen) >= b.most {
		return other
	}
	b.seen[value] = true
	return value
}
