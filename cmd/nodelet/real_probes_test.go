package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// shop is a pod whose probes ask for files that the test makes and removes.
const shop = `
apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: out, hostPath: {path: OUT}}]
  initContainers:
  - name: side
    restartPolicy: Always
    image: nodelet.local/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
    startupProbe: {exec: {command: [test, -e, /out/side]}, periodSeconds: 1, failureThreshold: 100}
    volumeMounts: [{name: out, mountPath: /out}]
  containers:
  - name: main
    image: nodelet.local/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; httpd -f -p 8080 -h /out & while :; do sleep 0.05; done"]
    ports: [{name: web, containerPort: 8080}]
    startupProbe:
      exec: {command: [sh, -c, "echo asked >> /out/startup; test -e /out/up"]}
      periodSeconds: 1
      failureThreshold: 100
    readinessProbe: {httpGet: {path: /ready, port: web}, periodSeconds: 1, failureThreshold: 2}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 2}
    volumeMounts: [{name: out, mountPath: /out}]
  - name: stuck
    image: nodelet.local/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.05; done"]
    livenessProbe: {exec: {command: [sh, -c, "test -e /out/stuck && sleep 7777; true"]}, periodSeconds: 1, failureThreshold: 3}
    volumeMounts: [{name: out, mountPath: /out}]
`

// TestRealProbes: the probes of containers on real ones, and what a restart of the
// agent or of the runtime does to them: nothing (INV-10).
func TestRealProbes(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		touch := func(name string) { require.NoError(t, os.WriteFile(filepath.Join(n.out, name), []byte("x"), 0o600)) }
		remove := func(name string) { require.NoError(t, os.Remove(filepath.Join(n.out, name))) }
		n.start()
		n.apply("shop", shop)
		n.await("shop", "the sidecar runs", func(p *corev1.Pod) bool { return containerID(p, "side") != "" })
		time.Sleep(2 * time.Second) // for something that must not come
		p := n.pods()["shop"]
		require.Empty(t, containerID(&p, "main"), "INI-10: it waits for the sidecar")
		touch("side")
		n.await("shop", "main runs", func(p *corev1.Pod) bool { return containerID(p, "main") != "" })
		touch("ready")
		n.eventually("the startup probe asks again and again", func() bool { return len(n.ran("startup")) >= 3 })
		require.False(t, n.isReady("shop"), "PRB-11")
		touch("up")
		p = n.awaitReady("shop")
		asked := len(n.ran("startup"))

		t.Run("a killed agent is followed by one that knows", func(t *testing.T) {
			for range 3 {
				n.kill()
				n.start()
				n.eventually("it answers", func() bool { return n.pods() != nil })
				for range 30 {
					require.True(t, n.isReady("shop"))
					time.Sleep(50 * time.Millisecond)
				}
			}
			p2 := n.pods()["shop"]
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
			require.Len(t, n.ran("startup"), asked, "the start is not probed again")
		})
		t.Run("what is not ready does not look ready after a restart", func(t *testing.T) {
			remove("ready")
			n.await("shop", "not ready", func(p *corev1.Pod) bool { return !isReady(p) })
			n.kill()
			n.start()
			n.eventually("it answers", func() bool { return n.pods() != nil })
			for range 40 {
				require.False(t, n.isReady("shop"))
				time.Sleep(50 * time.Millisecond)
			}
			touch("ready")
			n.awaitReady("shop")
		})
		t.Run("a runtime that is away is no failure", func(t *testing.T) {
			require.NoError(t, c.Kill9(t.Context()))
			for range 60 {
				require.True(t, n.isReady("shop"))
				time.Sleep(100 * time.Millisecond)
			}
			require.NoError(t, c.Restart(t.Context()))
			n.eventually("the runtime is back", func() bool { return strings.Contains(n.output("status"), "events from") })
			p2 := n.awaitReady("shop")
			for _, name := range []string{"side", "main", "stuck"} {
				require.Equal(t, containerID(&p, name), containerID(&p2, name))
			}
		})
		t.Run("a probe that hangs is a failure and leaves nothing", func(t *testing.T) {
			touch("stuck")
			p2 := n.await("shop", "restarted", func(p2 *corev1.Pod) bool { return restarts(p2, "stuck") == 1 })
			remove("stuck")
			require.Contains(t, n.events(), "Unhealthy Liveness probe failed: command timed out")
			require.Contains(t, n.events(), "Container stuck failed liveness probe, will be restarted")
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"), "the others run on")
			n.eventually("no command is left", func() bool { return !anywhere(t, "sleep\x007777") })
		})
		t.Run("a server that is gone is restarted", func(t *testing.T) {
			pid := httpd(t, containerID(&p, "main"))
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			p2 := n.await("shop", "main restarted and ready", func(p2 *corev1.Pod) bool { return restarts(p2, "main") >= 1 && isReady(p2) })
			require.NotEqual(t, containerID(&p, "main"), containerID(&p2, "main"))
		})
	})
}

// anywhere reports whether a process with these words runs.
func anywhere(t *testing.T, words string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), words) {
			return true
		}
	}
	return false
}

// httpd returns the process ID of the server in a container.
func httpd(t *testing.T, id string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, file := range files {
		group, err := os.ReadFile(file)
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err == nil && strings.Contains(string(group), id) && strings.HasPrefix(string(words), "httpd") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			return pid
		}
	}
	t.Fatalf("no server runs in %s", id)
	return 0
}
