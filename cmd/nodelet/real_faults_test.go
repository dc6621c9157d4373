package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// TestRealRuntimeFaults kills, restarts and empties the runtime under the agent.
func TestRealRuntimeFaults(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("worker", worker)
		n.apply("job", job)
		p := n.awaitReady("worker")
		n.await("job", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })

		t.Run("a runtime that dies and comes back changes nothing", func(t *testing.T) {
			require.NoError(t, c.Kill9(t.Context()))
			n.eventually("the loss is shown", func() bool { return strings.Contains(n.output("status"), "cannot") })
			require.True(t, n.isReady("worker"), "a runtime that is away is no fault of the pod")
			require.NoError(t, c.Restart(t.Context()))
			n.eventually("the runtime is back", func() bool { return strings.Contains(n.output("status"), "events from") })
			p2 := n.awaitReady("worker")
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
			require.Zero(t, restarts(&p2, "main"))
			require.Equal(t, []string{"prepare", "main"}, n.ran("job"))
		})
		t.Run("agent and runtime die together, and a container too", func(t *testing.T) {
			n.kill()
			pid := strings.Fields(ctrLine(t, c, containerID(&p, "main")))[1]
			require.NoError(t, c.Kill9(t.Context()))
			require.NoError(t, exec.CommandContext(t.Context(), "kill", "-9", pid).Run())
			require.NoError(t, c.Restart(t.Context()))
			n.start()
			p2 := n.await("worker", "main restarted", func(p *corev1.Pod) bool { return restarts(p, "main") == 1 && isReady(p) })
			require.Equal(t, containerID(&p, "helper"), containerID(&p2, "helper"))
			require.Equal(t, []string{"prepare", "main"}, n.ran("job"))
			p = p2
		})
		t.Run("a sandbox that dies is replaced, with a reason", func(t *testing.T) {
			sandbox := sandboxOf(t, c, "worker")
			ctr(t, c, "task", "kill", "-s", "SIGKILL", sandbox)
			p2 := n.await("worker", "rebuilt", func(p2 *corev1.Pod) bool {
				return isReady(p2) && containerID(p2, "main") != containerID(&p, "main") && restarts(p2, "prepare") == 1
			})
			require.Equal(t, p.UID, p2.UID, "the instance is the same")
			require.Contains(t, n.events(), "SandboxChanged")
			ran := n.ran("worker")
			require.Equal(t, []string{"prepare", "helper", "main"}, ran[len(ran)-3:], "INI-17: from the beginning")
			p = p2
		})
		t.Run("records that the runtime lost are not taken as work undone", func(t *testing.T) {
			n.stop()
			j := n.container(c, "job", "main")
			ctr(t, c, "containers", "rm", j)
			require.NoError(t, c.Kill9(t.Context()))
			require.NoError(t, c.Restart(t.Context()))
			n.start()
			n.await("job", "still succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
			n.awaitReady("worker")
			require.Equal(t, []string{"prepare", "main"}, n.ran("job"), "Q-31")
		})
	})
}

// ctrLine returns the line of a task in ctr's table: ID, PID, STATUS.
func ctrLine(t *testing.T, c *rig.Containerd, id string) string {
	t.Helper()
	for line := range strings.Lines(ctr(t, c, "task", "ls")) {
		if strings.HasPrefix(line, id) {
			return line
		}
	}
	t.Fatalf("no task %s", id)
	return ""
}

// sandboxOf returns the ID of the running sandbox of a pod.
func sandboxOf(t *testing.T, c *rig.Containerd, name string) string {
	t.Helper()
	ids := strings.Fields(ctr(t, c, "containers", "ls", "-q", fmt.Sprintf(`labels."io.kubernetes.pod.name"==%s,labels."io.cri-containerd.kind"==sandbox`, name)))
	running := ctr(t, c, "task", "ls")
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.Contains(running, id) })
	require.Len(t, ids, 1)
	return ids[0]
}

// container returns the ID of the only container of a pod with that name.
func (n *node) container(c *rig.Containerd, pod, name string) string {
	n.t.Helper()
	ids := strings.Fields(ctr(n.t, c, "containers", "ls", "-q",
		fmt.Sprintf(`labels."io.kubernetes.pod.name"==%s,labels."io.kubernetes.container.name"==%s`, pod, name)))
	require.Len(n.t, ids, 1)
	return ids[0]
}

// events returns the reasons and messages of all events.
func (n *node) events() string {
	n.t.Helper()
	var list corev1.EventList
	require.NoError(n.t, n.get("/events", &list))
	var b strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&b, "%s/%s %s %s\n", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return b.String()
}

// TestRealHostPort lets two pods want the same port of the node.
func TestRealHostPort(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		manifest := func(name string) string {
			return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: nodelet.local/busybox:1
    command: [sh, -c, "mkdir /www; echo %[1]s > /www/index.html; exec httpd -f -p 80 -h /www"]
    ports: [{containerPort: 80, hostPort: %[2]d}]
`, name, port)
		}
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("first", manifest("first"))
		p := n.await("first", "waits", func(p *corev1.Pod) bool { return p.Status.Reason == "HostPortConflict" })
		require.Contains(t, p.Status.Message, "nodelet.test", "the process that has it is named")
		require.Equal(t, corev1.PodPending, p.Status.Phase)
		require.NoError(t, l.Close())
		n.awaitReady("first")

		n.apply("second", manifest("second"))
		p = n.await("second", "waits", func(p *corev1.Pod) bool { return p.Status.Reason == "HostPortConflict" })
		require.Contains(t, p.Status.Message, "default/first holds it")
		n.kill()
		n.start()
		n.await("second", "still waits", func(p *corev1.Pod) bool { return p.Status.Reason == "HostPortConflict" })
		require.True(t, n.isReady("first"), "who has the port keeps it over a restart")
		n.remove("first")
		n.awaitReady("second")
	})
}

// TestRealRestartAll restarts all containers of a pod in its sandbox by a rule.
func TestRealRestartAll(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		n.start()
		n.apply("again", `
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: out, hostPath: {path: OUT}}, {name: memory, emptyDir: {}}]
  initContainers:
  - name: prepare
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo prepare >> /out/again"]
    volumeMounts: [{name: out, mountPath: /out}]
  containers:
  - name: source
    image: nodelet.local/busybox:1
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
    command: [sh, -c, "echo source >> /out/again; [ -e /memory/seen ] && exec sleep infinity; touch /memory/seen; sleep 0.3; exit 42"]
    volumeMounts: [{name: out, mountPath: /out}, {name: memory, mountPath: /memory}]
  - name: other
    image: nodelet.local/busybox:1
    command: [sh, -c, "echo other >> /out/again; exec sleep infinity"]
    volumeMounts: [{name: out, mountPath: /out}]
`)
		p := n.await("again", "restarted", func(p *corev1.Pod) bool { return restarts(p, "other") == 1 && isReady(p) })
		for _, name := range []string{"prepare", "source", "other"} {
			require.EqualValues(t, 1, restarts(&p, name), "RR-8: %s", name)
		}
		n.eventually("all have run twice", func() bool { return len(n.ran("again")) == 6 })
		ran := n.ran("again")
		require.Equal(t, "prepare", ran[0])
		require.Equal(t, "prepare", ran[3], "init containers run again, first")
		require.Len(t, strings.Fields(ctr(t, c, "containers", "ls", "-q", `labels."io.cri-containerd.kind"==sandbox`)), 1, "RR-6: one sandbox")
	})
}

// TestRealBadInput breaks what an administrator may break.
func TestRealBadInput(t *testing.T) {
	bin := binary(t)
	c := rig.ForTest(t, rig.Debian)
	n := newNode(t, bin, c.Endpoint())
	n.start()
	n.apply("worker", worker)
	p := n.awaitReady("worker")

	t.Run("a second agent on the same root", func(t *testing.T) {
		cmd := n.command("run", "--root-dir", filepath.Join(n.dir, "root"), "--run-dir", filepath.Join(n.dir, "run2"),
			"--static-pod-path", n.manifests, "--runtime-endpoint", c.Endpoint())
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 75, cmd.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), fmt.Sprintf("pid %d", n.process.Process.Pid))
	})
	t.Run("kinds, fields and duplicates", func(t *testing.T) {
		n.apply("deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")
		n.apply("probe", `{apiVersion: v1, kind: Pod, metadata: {name: probe}, spec: {containers: [{name: c, image: x, volumeDevices: [{name: d, devicePath: /dev/d}]}]}}`)
		n.apply("zz-copy", worker)
		n.eventually("all problems are events", func() bool {
			e := n.events()
			return strings.Contains(e, "Deployment") && strings.Contains(e, "deployment.yaml") &&
				strings.Contains(e, "spec.containers[0].volumeDevices") &&
				strings.Contains(e, "zz-copy.yaml") && strings.Contains(e, "worker.yaml already holds")
		})
		p2 := n.pods()["worker"]
		require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"), "what runs goes on")
		for _, name := range []string{"deployment", "probe", "zz-copy"} {
			n.remove(name)
		}
	})
	t.Run("a damaged state file", func(t *testing.T) {
		n.stop()
		state := filepath.Join(n.dir, "root", "state.db")
		require.NoError(t, os.WriteFile(state, []byte(strings.Repeat("damage", 5000)), 0o600))
		n.start()
		p2 := n.awaitReady("worker")
		require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
		require.Contains(t, n.events(), "StateDamaged")
		aside, err := filepath.Glob(state + ".corrupt-*")
		require.NoError(t, err)
		require.Len(t, aside, 1, "nothing is thrown away")
	})
	t.Run("a pod whose image cannot be had says why", func(t *testing.T) {
		n.apply("bad", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [{name: c, image: \"127.0.0.1:1/none:1\"}]}\n")
		p := n.await("bad", "waits", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Message != ""
		})
		require.Contains(t, p.Status.ContainerStatuses[0].State.Waiting.Message, "connection refused")
		require.Contains(t, n.output("status"), p.Status.ContainerStatuses[0].State.Waiting.Reason)
	})
	t.Run("a runtime that hangs harms the agent in no way", func(t *testing.T) {
		proxy, err := rig.NewProxy(t.Context(), filepath.Join(n.dir, "cri.sock"), c.Address())
		require.NoError(t, err)
		n.stop()
		n.endpoint = proxy.Endpoint()
		n.start()
		n.awaitReady("worker")
		release := make(chan struct{})
		proxy.Hook(func(string, rig.Stage) error { <-release; return nil })
		began := time.Now()
		n.apply("late", strings.ReplaceAll(strings.ReplaceAll(job, "name: job", "name: late"), "/out/job", "/out/late"))
		n.eventually("readyz names the runtime", func() bool {
			_, text := n.ask("/readyz")
			return strings.Contains(text, "[-]runtime failed")
		})
		require.Less(t, time.Since(began), patience)
		require.True(t, n.isReady("worker"))
		close(release)
		n.await("late", "done", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		require.Equal(t, []string{"prepare", "main"}, n.ran("late"))
		t.Cleanup(func() {
			n.clear()
			n.stop()
			require.NoError(t, proxy.Close())
			n.endpoint = c.Endpoint()
		})
	})
}
