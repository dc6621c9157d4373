package agent

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// scraped returns the samples of a scrape, by series.
func (s *stage) scraped() map[string]float64 {
	s.Helper()
	w := httptest.NewRecorder()
	s.a.Metrics().ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(s, http.StatusOK, w.Code)
	out := map[string]float64{}
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if series, value, ok := strings.Cut(lines.Text(), " "); ok && series != "#" {
			if i := strings.LastIndex(lines.Text(), " "); i > len(series) {
				series, value = lines.Text()[:i], lines.Text()[i+1:]
			}
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(s, err, lines.Text())
			out[series] = n
		}
	}
	return out
}

// samples are those that a test names.
func samples(all map[string]float64, names ...string) map[string]float64 {
	out := map[string]float64{}
	for _, name := range names {
		out[name] = all[name]
	}
	return out
}

// TestMetricsOfLife: a pod with an init container and a slow pull starts, crashes
// once, is swapped to an image that cannot be started, and leaves.
func TestMetricsOfLife(t *testing.T) {
	images := []fakecri.Image{{Ref: "app:1", PullLatency: 40 * time.Second, Size: 600 << 20}, {Ref: "init:1", Present: true}}
	onStage(t, fakecri.Options{Images: images}, file, func(s *stage) {
		web := changed(newPod("web"), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "init:1", Command: []string{"sh", "-c", "sleep 70"}}}
		})
		s.send("file", web)
		s.after(5 * time.Second)
		early := s.scraped()
		require.Equal(s, map[string]float64{
			"kubelet_running_pods": 1, `kubelet_desired_pods{static="true"}`: 1, `kubelet_active_pods{static="true"}`: 1,
			`kubelet_working_pods{config="desired",lifecycle="sync",static="true"}`: 1,
			`nodelet_pod_waits{reason="PodInitializing"}`:                           early[`nodelet_pod_waits{reason="PodInitializing"}`],
			"kubelet_pod_start_duration_seconds_count":                              0, `nodelet_source_pods{source="file"}`: 1,
		}, samples(early, "kubelet_running_pods", `kubelet_desired_pods{static="true"}`, `kubelet_active_pods{static="true"}`,
			`kubelet_working_pods{config="desired",lifecycle="sync",static="true"}`, `nodelet_pod_waits{reason="PodInitializing"}`,
			"kubelet_pod_start_duration_seconds_count", `nodelet_source_pods{source="file"}`))
		require.NotZero(s, early[`nodelet_pod_waits{reason="PodInitializing"}`])

		s.after(2 * time.Minute)
		ran := s.scraped()
		require.InDelta(s, 1, ran["kubelet_pod_start_duration_seconds_count"], 0)
		require.Greater(s, ran["kubelet_pod_start_duration_seconds_sum"], 70.0)
		require.InDelta(s, 1, ran["kubelet_pod_start_sli_duration_seconds_count"], 0)
		require.Less(s, ran["kubelet_pod_start_sli_duration_seconds_sum"], 5.0, "without the pull and the init container, which overlap")
		require.InDelta(s, 1, ran[`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="500MB-1GB"}`], 0)
		require.InDelta(s, 40, ran[`kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="500MB-1GB"}`], 0)
		require.NotZero(s, ran[`kubelet_pod_worker_duration_seconds_count{operation_type="create"}`])
		require.Zero(s, ran[`kubelet_pod_worker_duration_seconds_count{operation_type="sync"}`])

		require.NoError(s, s.cri.ExitNamed(key(s, "web", "main"), 3, ""))
		s.after(30 * time.Second)
		s.cri.Inject(fakecri.Fault{RPC: "CreateContainer", Times: 1})
		require.NoError(s, s.cri.ExitNamed(key(s, "web", "main"), 3, ""))
		s.after(time.Minute)
		s.send("file")
		s.after(time.Minute)
		last := s.scraped()
		require.Equal(s, map[string]float64{
			"kubelet_started_pods_total":                                                                      1,
			"kubelet_started_pods_errors_total":                                                               0,
			`kubelet_started_containers_total{container_type="init_container"}`:                               1,
			`kubelet_started_containers_total{container_type="container"}`:                                    4,
			`kubelet_terminated_containers_total{container_type="init_container",exit_code="0"}`:              1,
			`kubelet_terminated_containers_total{container_type="container",exit_code="3"}`:                   2,
			`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`: 1,
			`kubelet_runtime_operations_total{operation_type="run_podsandbox"}`:                               1,
			`kubelet_runtime_operations_total{operation_type="pull_image"}`:                                   1,
			`kubelet_runtime_operations_errors_total{operation_type="create_container"}`:                      1,
			"kubelet_running_pods": 0, `kubelet_active_pods{static="true"}`: 0, `kubelet_desired_pods{static="true"}`: 0,
			`kubelet_running_containers{container_state="running"}`: 0,
			`nodelet_events_total{reason="Started",type="Normal"}`:  4,
		}, samples(last, "kubelet_started_pods_total", "kubelet_started_pods_errors_total",
			`kubelet_started_containers_total{container_type="init_container"}`, `kubelet_started_containers_total{container_type="container"}`,
			`kubelet_terminated_containers_total{container_type="init_container",exit_code="0"}`,
			`kubelet_terminated_containers_total{container_type="container",exit_code="3"}`,
			`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`,
			`kubelet_runtime_operations_total{operation_type="run_podsandbox"}`, `kubelet_runtime_operations_total{operation_type="pull_image"}`,
			`kubelet_runtime_operations_errors_total{operation_type="create_container"}`,
			"kubelet_running_pods", `kubelet_active_pods{static="true"}`, `kubelet_desired_pods{static="true"}`,
			`kubelet_running_containers{container_state="running"}`, `nodelet_events_total{reason="Started",type="Normal"}`))
		require.NotZero(s, last[`kubelet_pod_worker_duration_seconds_count{operation_type="sync"}`])
		require.NotZero(s, last[`kubelet_pod_worker_duration_seconds_count{operation_type="kill"}`])
		require.NotZero(s, last["nodelet_state_write_duration_seconds_count"])
		require.NotZero(s, last["kubelet_pleg_relist_duration_seconds_count"])
		require.NotZero(s, last["kubelet_pleg_last_seen_seconds"])
	})
}

// TestMetricsOfAdopted: a pod that ran before the agent did is no start.
func TestMetricsOfAdopted(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", newPod("web"))
		s.after(10 * time.Second)
		require.InDelta(s, 1, s.scraped()["kubelet_pod_start_sli_duration_seconds_count"], 0)
		s.restart()
		s.send("file", newPod("web"))
		s.after(time.Minute)
		all := s.scraped()
		require.Zero(s, all["kubelet_pod_start_duration_seconds_count"])
		require.Zero(s, all["kubelet_pod_start_sli_duration_seconds_count"])
		require.Zero(s, all["kubelet_started_pods_total"])
		require.InDelta(s, 1, all["kubelet_running_pods"], 0)
		require.InDelta(s, 1, all[`kubelet_running_containers{container_state="running"}`], 0)
	})
}

// TestMetricsOfWaiting: pods without room and on their way out are told apart.
func TestMetricsOfWaiting(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(maxPods(1))
		slow := changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep 9999"} })
		s.send("file", slow, newPod("b"))
		all := s.scraped()
		require.InDelta(s, 2, all[`kubelet_desired_pods{static="true"}`], 0)
		require.InDelta(s, 1, all[`kubelet_active_pods{static="true"}`], 0)
		require.InDelta(s, 1, all[`nodelet_pod_waits{reason="OutOfpods"}`], 0)
		s.send("file", newPod("b"))
		all = s.scraped()
		require.InDelta(s, 1, all[`kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"}`], 0)
	})
}
