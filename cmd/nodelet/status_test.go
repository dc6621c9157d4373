package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/server"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the transcripts under testdata")

// TestPrintStatus compares what people read with the transcripts.
func TestPrintStatus(t *testing.T) {
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	well := server.Status{
		Version: "v1.2.3", Node: "edge", Started: now.Add(-26 * time.Hour),
		Runtime: server.RuntimeState{Endpoint: "unix:///run/containerd/containerd.sock", Name: "containerd", Version: "v2.4.2", Events: "cri"},
		Sources: []server.SourceState{{Name: "file", Origin: "/etc/nodelet/manifests", Delivered: true, Pods: 4}},
	}
	waiting := server.Status{
		Version: "v1.2.3", Node: "edge", Started: now.Add(-3 * time.Second),
		Runtime: server.RuntimeState{Endpoint: "unix:///run/containerd/containerd.sock", Problem: "cannot call the container runtime: it is not connected"},
		Sources: []server.SourceState{
			{Name: "file", Origin: "/etc/nodelet/manifests", Delivered: true, Problems: []string{"/etc/nodelet/manifests/web.yaml: spec.containers[0].image: Required value; the last good version stays in force"}},
			{Name: "http", Origin: "https://fleet.example/pods", Problems: []string{"cannot fetch https://fleet.example/pods: connection refused"}},
		},
	}
	noNetwork := well
	noNetwork.Runtime.Problem = "network not ready: cni plugin not initialized"
	for _, c := range []struct {
		name string
		st   server.Status
		pods []corev1.Pod
	}{
		{"well", well, statusPods(now)},
		{"waiting", waiting, nil},
		{"no-network", noNetwork, statusPods(now)[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			require.NoError(t, printStatus(&got, c.st, c.pods, now))
			path := filepath.Join("testdata", "status-"+c.name+".txt")
			if *rewrite {
				require.NoError(t, os.WriteFile(path, got.Bytes(), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got.String())
		})
	}
}

// statusPods are pods in states that people ask about.
func statusPods(now time.Time) []corev1.Pod {
	made := func(name string, age time.Duration, st corev1.PodStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
			Status:     st,
		}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	web := made("web", 26*time.Hour, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", Ready: true, RestartCount: 2, State: running},
	}})
	crash := made("crash", 5*time.Minute, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", RestartCount: 5, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 2m40s restarting failed container=main pod=crash_shop(u)",
		}}},
	}})
	job := made("job", time.Hour, corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}},
	}})
	leaving := made("leaving", time.Minute, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", Ready: true, State: running},
	}})
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	waiting := made("waiting", 0, corev1.PodStatus{
		Phase: corev1.PodPending, Reason: "RuntimeNotReady", Message: "the container runtime has not listed its pods yet",
	})
	waiting.CreationTimestamp = metav1.Time{}
	return []corev1.Pod{web, crash, job, leaving, waiting}
}
