package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/metrics"
)

// busy returns metrics in which everything has a value.
func busy() *metrics.Metrics {
	m := metrics.New(metrics.Options{Node: "edge", Version: "v1.2.3", Look: func() metrics.State {
		return metrics.State{
			Desired: 3, Active: 2, RunningPods: 1, Containers: map[string]int{"running": 2, "exited": 1},
			Working: map[metrics.Working]int{{Lifecycle: "sync", Config: "desired"}: 2, {Lifecycle: "terminating", Config: "orphan"}: 1},
			Waits:   map[string]int{"CrashLoopBackOff": 2}, Sources: map[string]metrics.Source{"file": {Pods: 3, Problems: 1}},
			PullsWaiting: 4, Listed: time.Unix(1700000000, 500_000_000),
		}
	}})
	m.Operation("RunPodSandbox", time.Second, false)
	m.Operation("PullImage", time.Second, true)
	m.Operation("Connect", time.Second, true)
	m.Relist(20*time.Millisecond, 0)
	m.Relist(20*time.Millisecond, time.Minute)
	m.Work(metrics.WorkCreate, time.Second)
	m.SandboxTried(false)
	m.SandboxTried(true)
	m.ContainerTried(metrics.TypeContainer, "")
	m.ContainerTried(metrics.TypeInit, "RunContainerError")
	m.ContainerEnded(metrics.TypeContainer, 137)
	m.ContainerEnded(metrics.TypeContainer, -7)
	m.PodRunning(time.Second)
	m.PodStarted(time.Second)
	m.Pulled(2*time.Second, 10<<20)
	m.Written(time.Millisecond, false)
	m.Written(time.Millisecond, true)
	m.Reloaded(true)
	m.Event("Normal", "Started")
	m.Event("Normal", "Started")
	return m
}

func scrape(t *testing.T, m *metrics.Metrics, accept string) (kind, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	m.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	return w.Header().Get("Content-Type"), w.Body.String()
}

func families(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	_, body := scrape(t, m, "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(t, err)
	return found
}

// TestExposed holds the name, type and labels of everything that is exposed:
// dashboards and alerts are written against them.
func TestExposed(t *testing.T) {
	want := []string{
		"kubelet_active_pods GAUGE static",
		"kubelet_desired_pods GAUGE static",
		"kubelet_image_pull_duration_seconds HISTOGRAM image_size_in_bytes",
		"kubelet_node_name GAUGE node",
		"kubelet_pleg_last_seen_seconds GAUGE",
		"kubelet_pleg_relist_duration_seconds HISTOGRAM",
		"kubelet_pleg_relist_interval_seconds HISTOGRAM",
		"kubelet_pod_start_duration_seconds HISTOGRAM",
		"kubelet_pod_start_sli_duration_seconds HISTOGRAM",
		"kubelet_pod_worker_duration_seconds HISTOGRAM operation_type",
		"kubelet_running_containers GAUGE container_state",
		"kubelet_running_pods GAUGE",
		"kubelet_runtime_operations_duration_seconds HISTOGRAM operation_type",
		"kubelet_runtime_operations_errors_total COUNTER operation_type",
		"kubelet_runtime_operations_total COUNTER operation_type",
		"kubelet_started_containers_errors_total COUNTER code container_type",
		"kubelet_started_containers_total COUNTER container_type",
		"kubelet_started_pods_errors_total COUNTER",
		"kubelet_started_pods_total COUNTER",
		"kubelet_terminated_containers_total COUNTER container_type exit_code",
		"kubelet_working_pods GAUGE config lifecycle static",
		"nodelet_build_info GAUGE commit goversion version",
		"nodelet_config_reloads_total COUNTER result",
		"nodelet_events_total COUNTER reason type",
		"nodelet_pod_waits GAUGE reason",
		"nodelet_pulls_waiting GAUGE",
		"nodelet_source_pods GAUGE source",
		"nodelet_source_problems GAUGE source",
		"nodelet_state_write_duration_seconds HISTOGRAM",
		"nodelet_state_write_errors_total COUNTER",
	}
	var got []string
	standard := 0
	for name, family := range families(t, busy()) {
		require.NotEmpty(t, family.GetHelp(), name)
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			standard++
			continue
		}
		line := []string{name, family.GetType().String()}
		for _, l := range family.GetMetric()[0].GetLabel() {
			line = append(line, l.GetName())
		}
		got = append(got, strings.Join(line, " "))
	}
	slices.Sort(got)
	require.Equal(t, want, got)
	require.Greater(t, standard, 20)
	require.Contains(t, families(t, busy()), "process_cpu_seconds_total")
	require.Contains(t, families(t, busy()), "go_goroutines")
}

// TestValues: what was counted is shown under the kubelet's labels.
func TestValues(t *testing.T) {
	_, body := scrape(t, busy(), "")
	for _, line := range []string{
		`kubelet_node_name{node="edge"} 1`,
		`kubelet_desired_pods{static="true"} 3`,
		`kubelet_active_pods{static="true"} 2`,
		`kubelet_running_pods 1`,
		`kubelet_running_containers{container_state="running"} 2`,
		`kubelet_running_containers{container_state="created"} 0`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 2`,
		`kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1`,
		`kubelet_working_pods{config="orphan",lifecycle="terminated",static="true"} 0`,
		`kubelet_pleg_last_seen_seconds 1.7000000005e+09`,
		`kubelet_pleg_relist_duration_seconds_count 2`,
		`kubelet_pleg_relist_interval_seconds_count 1`,
		`kubelet_pleg_relist_interval_seconds_bucket{le="60"} 1`,
		`kubelet_pleg_relist_interval_seconds_bucket{le="30"} 0`,
		`kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1`,
		`kubelet_runtime_operations_errors_total{operation_type="pull_image"} 1`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`,
		`kubelet_started_pods_total 2`,
		`kubelet_started_pods_errors_total 1`,
		`kubelet_started_containers_total{container_type="container"} 1`,
		`kubelet_started_containers_total{container_type="ephemeral_container"} 0`,
		`kubelet_started_containers_errors_total{code="RunContainerError",container_type="init_container"} 1`,
		`kubelet_terminated_containers_total{container_type="container",exit_code="137"} 1`,
		`kubelet_terminated_containers_total{container_type="container",exit_code="other"} 1`,
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="10MB-100MB"} 1`,
		`nodelet_state_write_duration_seconds_count 2`,
		`nodelet_state_write_errors_total 1`,
		`nodelet_config_reloads_total{result="applied"} 0`,
		`nodelet_config_reloads_total{result="refused"} 1`,
		`nodelet_events_total{reason="Started",type="Normal"} 2`,
		`nodelet_pod_waits{reason="CrashLoopBackOff"} 2`,
		`nodelet_source_pods{source="file"} 3`,
		`nodelet_source_problems{source="file"} 1`,
		`nodelet_pulls_waiting 4`,
	} {
		require.Contains(t, body, "\n"+line+"\n")
	}
	require.NotContains(t, body, "Connect", "it is no call of CRI")
	require.Regexp(t, `nodelet_build_info\{commit="[^"]+",goversion="go[^"]+",version="v1.2.3"\} 1`, body)
}

// TestOwnNames: our own names keep the rules of Prometheus.
func TestOwnNames(t *testing.T) {
	var own []*dto.MetricFamily
	for name, family := range families(t, busy()) {
		if strings.HasPrefix(name, "nodelet_") {
			own = append(own, family)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(own).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestOpenMetrics(t *testing.T) {
	kind, body := scrape(t, busy(), "application/openmetrics-text;version=1.0.0")
	require.Contains(t, kind, "application/openmetrics-text")
	require.True(t, strings.HasSuffix(body, "# EOF\n"))
}

// TestBoundedReasons: no caller can make a label grow without end.
func TestBoundedReasons(t *testing.T) {
	waits := map[string]int{}
	for i := range 1000 {
		waits[fmt.Sprint("R", i)] = 1
	}
	m := metrics.New(metrics.Options{Look: func() metrics.State { return metrics.State{Waits: waits} }})
	for reason := range waits {
		m.Event("Normal", reason)
	}
	found := families(t, m)
	for _, name := range []string{"nodelet_events_total", "nodelet_pod_waits"} {
		sum := 0.0
		require.Len(t, found[name].GetMetric(), 101, name)
		for _, series := range found[name].GetMetric() {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue()
		}
		require.InDelta(t, 1000, sum, 0, name)
	}
}

func TestSizes(t *testing.T) {
	m := metrics.New(metrics.Options{})
	for _, size := range []int64{0, 10<<20 - 1, 10 << 20, 1 << 30, 100<<30 - 1, 100 << 30} {
		m.Pulled(time.Second, size)
	}
	got := map[string]uint64{}
	for _, series := range families(t, m)["kubelet_image_pull_duration_seconds"].GetMetric() {
		got[series.GetLabel()[0].GetValue()] = series.GetHistogram().GetSampleCount()
	}
	require.Equal(t, map[string]uint64{"0-10MB": 2, "10MB-100MB": 1, "1GB-5GB": 1, "60GB-100GB": 1, "GT100GB": 1}, got)
}

// TestWithoutState: an agent that has no pods to show still shows itself.
func TestWithoutState(t *testing.T) {
	_, body := scrape(t, metrics.New(metrics.Options{Node: "edge"}), "")
	require.Contains(t, body, `kubelet_node_name{node="edge"} 1`)
	require.NotContains(t, body, "kubelet_running_pods")
}

// TestTwo: two agents in one process count apart.
func TestTwo(t *testing.T) {
	a, b := metrics.New(metrics.Options{}), metrics.New(metrics.Options{})
	a.SandboxTried(false)
	_, body := scrape(t, b, "")
	require.Contains(t, body, "kubelet_started_pods_total 0")
}
