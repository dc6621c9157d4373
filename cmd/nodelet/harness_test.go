package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// patience is how long a scenario waits for what must come. It is generous: it
// only decides how long a failing test takes.
const patience = 40 * time.Second

// binary builds the program once.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nodelet")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// node is one nodelet under test with directories of its own.
type node struct {
	t         *testing.T
	bin       string
	dir       string
	endpoint  string
	manifests string
	out       string // a directory that pods write to, mounted from the host
	extra     []string

	mu      sync.Mutex // guards process
	process *exec.Cmd
}

func newNode(t *testing.T, bin, endpoint string, extra ...string) *node {
	t.Helper()
	// Sockets live in it, so its path must be short.
	dir, err := os.MkdirTemp("/tmp", "nl") //nolint:usetesting // t.TempDir is too long for a unix socket
	require.NoError(t, err)
	n := &node{
		t: t, bin: bin, dir: dir, endpoint: endpoint, extra: extra,
		manifests: filepath.Join(dir, "manifests"), out: filepath.Join(dir, "out"),
	}
	require.NoError(t, os.MkdirAll(n.manifests, 0o700))
	require.NoError(t, os.MkdirAll(n.out, 0o777))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of nodelet:\n%s", tail(n.log(), 150))
		}
		n.clear()
		n.stop()
		require.NoError(t, os.RemoveAll(dir))
	})
	return n
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (n *node) log() string {
	text, err := os.ReadFile(filepath.Join(n.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (n *node) command(args ...string) *exec.Cmd {
	return exec.Command(n.bin, args...)
}

// start starts the agent.
func (n *node) start() {
	n.t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, log.Close()) }()
	cmd := n.command(append([]string{
		"run", "--root-dir", filepath.Join(n.dir, "root"), "--run-dir", filepath.Join(n.dir, "run"),
		"--pod-logs-dir", filepath.Join(n.dir, "logs"), "--static-pod-path", n.manifests, "--runtime-endpoint", n.endpoint,
		"--config", n.config(), "--node-name", "edge", "-v", "4",
	}, n.extra...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(n.t, cmd.Start())
	n.mu.Lock()
	n.process = cmd
	n.mu.Unlock()
}

func (n *node) config() string {
	path := filepath.Join(n.dir, "config.yaml")
	if _, err := os.Stat(path); err != nil {
		require.NoError(n.t, os.WriteFile(path, []byte("apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\nregistryPullQPS: 0\n"), 0o600))
	}
	return path
}

// kill ends the agent the hard way and waits until it is gone.
func (n *node) kill() { n.end(syscall.SIGKILL) }

// stop ends the agent in order.
func (n *node) stop() { n.end(syscall.SIGTERM) }

func (n *node) end(signal syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return
	}
	_ = n.process.Process.Signal(signal)
	_ = n.process.Wait() // why it ended is known
	n.process = nil
}

func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil
}

// apply renames a manifest into place, as careful writers do.
func (n *node) apply(name, text string) {
	n.t.Helper()
	text = strings.ReplaceAll(text, "OUT", n.out)
	temp := filepath.Join(n.dir, name+".new")
	require.NoError(n.t, os.WriteFile(temp, []byte(text), 0o600))
	require.NoError(n.t, os.Rename(temp, filepath.Join(n.manifests, name+".yaml")))
}

func (n *node) remove(name string) {
	n.t.Helper()
	require.NoError(n.t, os.Remove(filepath.Join(n.manifests, name+".yaml")))
}

// get asks the agent's socket; an error means it is not there.
func (n *node) get(path string, into any) error {
	// Also after the test's own context has ended: to clean up.
	return newClient(filepath.Join(n.dir, "run")).get(context.Background(), path, into)
}

func (n *node) pods() map[string]corev1.Pod {
	var list corev1.PodList
	if err := n.get("/pods", &list); err != nil {
		return nil
	}
	out := map[string]corev1.Pod{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i]
	}
	return out
}

// eventually waits until a condition holds.
func (n *node) eventually(what string, holds func() bool) {
	n.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			state, _ := json.MarshalIndent(n.pods(), "", " ")
			require.FailNow(n.t, "it never came: "+what, "%s", tail(string(state), 200))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// await waits until a pod is as wanted.
func (n *node) await(name, what string, holds func(p *corev1.Pod) bool) corev1.Pod {
	n.t.Helper()
	var p corev1.Pod
	n.eventually(name+": "+what, func() bool {
		found, ok := n.pods()[name]
		p = found
		return ok && holds(&p)
	})
	return p
}

func (n *node) isReady(name string) bool {
	p, ok := n.pods()[name]
	return ok && isReady(&p)
}

func (n *node) awaitReady(name string) corev1.Pod {
	n.t.Helper()
	return n.await(name, "ready", isReady)
}

func (n *node) awaitGone(name string) {
	n.t.Helper()
	n.eventually(name+" is gone", func() bool {
		pods := n.pods()
		_, there := pods[name]
		return pods != nil && !there
	})
}

// clear removes all manifests and waits until the pods are gone.
func (n *node) clear() {
	if !n.running() {
		n.start()
	}
	entries, err := os.ReadDir(n.manifests)
	require.NoError(n.t, err)
	for _, e := range entries {
		require.NoError(n.t, os.Remove(filepath.Join(n.manifests, e.Name())))
	}
	deadline := time.Now().Add(patience)
	for {
		pods := n.pods()
		if pods != nil && len(pods) == 0 {
			return
		}
		if time.Now().After(deadline) {
			n.t.Errorf("pods are left over: %d", len(pods))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ran returns the lines that containers wrote to a file of the out directory.
func (n *node) ran(file string) []string {
	text, err := os.ReadFile(filepath.Join(n.out, file))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// awaitRan waits until containers wrote these lines, and no others.
func (n *node) awaitRan(file string, lines ...string) {
	n.t.Helper()
	n.eventually(file+" has its lines", func() bool { return len(n.ran(file)) >= len(lines) })
	require.Equal(n.t, lines, n.ran(file))
}

// ctr runs a command of ctr against the runtime, for what the agent must not do.
func ctr(t *testing.T, c *rig.Containerd, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.Ctr(), append([]string{"--address", c.Address(), "-n", "k8s.io"}, args...)...).Output()
	require.NoError(t, err)
	return string(out)
}

// containerID returns the runtime's ID of a container.
func containerID(p *corev1.Pod, name string) string {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Name == name {
				_, id, _ := strings.Cut(s.ContainerID, "://")
				return id
			}
		}
	}
	return ""
}

func restarts(p *corev1.Pod, name string) int32 {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range list {
			if s.Name == name {
				return s.RestartCount
			}
		}
	}
	return -1
}

// output runs a command of nodelet that must succeed.
func (n *node) output(args ...string) string {
	n.t.Helper()
	out, err := n.command(append(args, "--run-dir", filepath.Join(n.dir, "run"))...).CombinedOutput()
	require.NoError(n.t, err, string(out))
	return string(out)
}
