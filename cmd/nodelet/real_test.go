package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// worker is a pod whose containers note each of their runs.
const worker = `
apiVersion: v1
kind: Pod
metadata: {name: worker, labels: {tier: back}}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: out, hostPath: {path: OUT}}]
  initContainers:
  - name: prepare
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo prepare >> /out/worker"]
    volumeMounts: [{name: out, mountPath: /out}]
  - name: helper
    restartPolicy: Always
    image: nodelet.local/busybox:1
    command: [sh, -c, "trap 'echo helper-ended >> /out/worker; exit 0' TERM; echo helper >> /out/worker; while :; do sleep 0.05; done"]
    volumeMounts: [{name: out, mountPath: /out}]
  containers:
  - name: main
    image: nodelet.local/busybox:1
    command: [sh, -c, "trap 'echo main-ended >> /out/worker; exit 0' TERM; echo main >> /out/worker; while :; do sleep 0.05; done"]
    volumeMounts: [{name: out, mountPath: /out}]
`

const job = `
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  volumes: [{name: out, hostPath: {path: OUT}}]
  initContainers:
  - name: prepare
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo prepare >> /out/job"]
    volumeMounts: [{name: out, mountPath: /out}]
  containers:
  - name: main
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo main >> /out/job"]
    volumeMounts: [{name: out, mountPath: /out}]
`

func flavors(t *testing.T, test func(t *testing.T, c *rig.Containerd, bin string)) {
	t.Helper()
	bin := binary(t)
	for _, f := range []rig.Flavor{rig.Debian, rig.V2} {
		t.Run(string(f), func(t *testing.T) { test(t, rig.ForTest(t, f), bin) })
	}
}

// TestRealLifecycle walks pods through what an administrator does to them.
func TestRealLifecycle(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("worker", worker)
		n.apply("job", job)
		p := n.awaitReady("worker")
		n.awaitRan("worker", "prepare", "helper", "main") // INV-8: in order, each once
		require.NotEmpty(t, p.Status.PodIP)
		require.Equal(t, corev1.PodQOSBestEffort, p.Status.QOSClass)
		done := n.await("job", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		require.Equal(t, []string{"prepare", "main"}, n.ran("job"))

		t.Run("a killed container is started again, alone", func(t *testing.T) {
			ctr(t, c, "task", "kill", "-s", "SIGKILL", containerID(&p, "main"))
			p2 := n.await("worker", "main restarted", func(p *corev1.Pod) bool { return restarts(p, "main") == 1 && isReady(p) })
			require.Equal(t, containerID(&p, "helper"), containerID(&p2, "helper"), "INV-8")
			require.Equal(t, p.Status.PodIP, p2.Status.PodIP)
			require.NotNil(t, p2.Status.ContainerStatuses[0].LastTerminationState.Terminated)
			require.EqualValues(t, 137, p2.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
			p = p2
		})
		t.Run("an agent restart changes nothing", func(t *testing.T) {
			n.kill()
			n.start()
			p2 := n.awaitReady("worker")
			require.Equal(t, p.UID, p2.UID)
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
			require.EqualValues(t, 1, restarts(&p2, "main"))
			require.True(t, p.Status.StartTime.Equal(p2.Status.StartTime), "startTime survives")
			j := n.pods()["job"]
			require.Equal(t, corev1.PodSucceeded, j.Status.Phase)
			require.Equal(t, done.UID, j.UID)
			require.Equal(t, []string{"prepare", "main"}, n.ran("job"), "INV-7: finished work is not run again")
		})
		t.Run("a lost state file costs history, not a pod", func(t *testing.T) {
			n.stop()
			require.NoError(t, os.Remove(filepath.Join(n.dir, "root", "state.db")))
			n.start()
			p2 := n.awaitReady("worker")
			require.Equal(t, p.UID, p2.UID, "adopted")
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
			require.EqualValues(t, 1, restarts(&p2, "main"), "the attempt is in the runtime too")
			n.await("job", "still succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
			require.Equal(t, []string{"prepare", "main"}, n.ran("job"))
		})
		t.Run("a label is applied in place", func(t *testing.T) {
			n.apply("worker", strings.Replace(worker, "tier: back", "tier: front", 1))
			p2 := n.await("worker", "relabelled", func(p *corev1.Pod) bool { return p.Labels["tier"] == "front" })
			require.Equal(t, p.UID, p2.UID)
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
		})
		t.Run("a broken manifest disturbs nothing", func(t *testing.T) {
			n.apply("worker", "apiVersion: v1\nkind: Pod\nmetadata: {name: worker}\nspec: {containers: [{name: main, imagee: x}]}\n")
			n.eventually("the problem is shown", func() bool { return strings.Contains(n.output("status"), "imagee") })
			p2 := n.awaitReady("worker")
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"), "INV-25")
		})
		t.Run("another command replaces the pod, without overlap", func(t *testing.T) {
			n.apply("worker", strings.Replace(worker, "echo main >>", "echo main2 >>", 1))
			p2 := n.await("worker", "replaced", func(p2 *corev1.Pod) bool { return p2.UID != p.UID && isReady(p2) })
			require.NotEqual(t, p.UID, p2.UID)
			n.eventually("main2 has run", func() bool { return slices.Contains(n.ran("worker"), "main2") })
			ran := n.ran("worker")
			require.Equal(t, []string{"main-ended", "helper-ended", "prepare", "helper", "main2"}, ran[len(ran)-5:],
				"INV-4, INV-9: the old one ends first, the sidecar last")
		})
		t.Run("a deleted manifest leaves nothing", func(t *testing.T) {
			n.remove("worker")
			n.remove("job")
			n.awaitGone("worker")
			n.awaitGone("job")
			for _, dir := range []string{"root/pods", "logs"} {
				left, err := os.ReadDir(filepath.Join(n.dir, dir))
				require.NoError(t, err)
				require.Empty(t, left, dir)
			}
			left := strings.TrimSpace(ctr(t, c, "containers", "ls"))
			require.NotContains(t, left, "\n", "only the header is left")
		})
	})
}

// TestRealImageSwap checks that a swap pulls first and touches one container.
func TestRealImageSwap(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		registry, err := rig.NewRegistry(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, registry.Close()) })
		for _, v := range []string{"1", "2"} {
			image, err := rig.Busybox(t.Context(), v)
			require.NoError(t, err)
			_, err = registry.Push(t.Context(), "app:"+v, image)
			require.NoError(t, err)
		}
		manifest := func(tag string) string {
			return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: swap}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - {name: app, image: "%s/app:%s", command: [sleep, infinity]}
  - {name: other, image: "nodelet.local/busybox:1", command: [sleep, infinity]}
`, registry.Address(), tag)
		}
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("swap", manifest("1"))
		p := n.awaitReady("swap")

		n.apply("swap", manifest("missing"))
		n.eventually("the failed pull is an event", func() bool {
			var events corev1.EventList
			require.NoError(t, n.get("/events", &events))
			for _, e := range events.Items {
				if e.Reason == "Failed" && strings.Contains(e.Message, "app:missing") {
					return true
				}
			}
			return false
		})
		p2 := n.pods()["swap"]
		require.Equal(t, containerID(&p, "app"), containerID(&p2, "app"), "Q-33: the old one runs on")
		require.True(t, isReady(&p2))

		n.apply("swap", manifest("2"))
		p3 := n.await("swap", "swapped", func(p *corev1.Pod) bool { return restarts(p, "app") == 1 && isReady(p) })
		require.Equal(t, p.UID, p3.UID)
		require.Equal(t, p.Status.PodIP, p3.Status.PodIP)
		require.Equal(t, containerID(&p, "other"), containerID(&p3, "other"), "SWP-2: only that container")
		for _, s := range p3.Status.ContainerStatuses {
			if s.Name == "app" {
				require.Equal(t, registry.Address()+"/app:2", s.Image)
			}
		}
	})
}
