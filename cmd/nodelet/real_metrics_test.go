package main

import (
	"context"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/rig"
)

const crasher = `
apiVersion: v1
kind: Pod
metadata: {name: crasher}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: out, hostPath: {path: OUT}}]
  initContainers:
  - name: prepare
    image: nodelet.local/busybox:1
    command: [sh, -c, "sleep 1"]
  containers:
  - name: main
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo main >> /out/crasher; [ $(wc -l < /out/crasher) -gt 1 ] || exit 3; trap 'exit 0' TERM; while :; do sleep 0.05; done"]
    volumeMounts: [{name: out, mountPath: /out}]
`

// sample returns the value of a series, zero when there is none.
func (n *node) sample(series string) float64 {
	n.t.Helper()
	body, err := newClient(filepath.Join(n.dir, "run")).open(context.Background(), "/metrics")
	require.NoError(n.t, err)
	text, err := io.ReadAll(body)
	require.NoError(n.t, err)
	require.NoError(n.t, body.Close())
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(n.t, err)
	return value
}

// TestRealMetrics: the counters say what happened to a pod that started, crashed,
// started again and was removed.
func TestRealMetrics(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("crasher", crasher)
		n.awaitRan("crasher", "main", "main")
		n.awaitReady("crasher")
		for _, c := range []struct {
			series string
			want   float64
		}{
			{"kubelet_running_pods", 1},
			{`kubelet_running_containers{container_state="running"}`, 1},
			{"kubelet_started_pods_total", 1},
			{`kubelet_started_containers_total{container_type="container"}`, 2},
			{`kubelet_started_containers_total{container_type="init_container"}`, 1},
			{`kubelet_terminated_containers_total{container_type="container",exit_code="3"}`, 1},
			{"kubelet_pod_start_duration_seconds_count", 1},
			{`kubelet_runtime_operations_total{operation_type="run_podsandbox"}`, 1},
			{`kubelet_runtime_operations_total{operation_type="start_container"}`, 3},
			{`kubelet_runtime_operations_errors_total{operation_type="start_container"}`, 0},
			{`nodelet_events_total{reason="Started",type="Normal"}`, 3},
		} {
			require.InDelta(t, c.want, n.sample(c.series), 0, c.series)
		}
		n.remove("crasher")
		n.awaitGone("crasher")
		require.Zero(t, n.sample("kubelet_running_pods"))
		require.Zero(t, n.sample(`kubelet_active_pods{static="true"}`))
		require.Zero(t, n.sample(`kubelet_running_containers{container_state="exited"}`))
		require.InDelta(t, 1, n.sample(`kubelet_terminated_containers_total{container_type="container",exit_code="0"}`), 0)
		require.NotZero(t, n.sample(`kubelet_runtime_operations_total{operation_type="stop_podsandbox"}`))
		require.NotZero(t, n.sample(`kubelet_runtime_operations_total{operation_type="remove_podsandbox"}`))
		require.NotZero(t, n.sample("process_start_time_seconds"))
	})
}
