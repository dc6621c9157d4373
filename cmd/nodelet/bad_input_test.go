package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// bare is a node without a runtime that can be cleared: for tests of what goes
// wrong.
func bare(t *testing.T, bin string) *node {
	t.Helper()
	// Sockets live in it, so its path must be short.
	dir, err := os.MkdirTemp("/tmp", "nl") //nolint:usetesting // t.TempDir is too long for a unix socket
	require.NoError(t, err)
	n := &node{
		t: t, bin: bin, dir: dir, endpoint: "unix://" + filepath.Join(dir, "cri.sock"),
		manifests: filepath.Join(dir, "manifests"), out: filepath.Join(dir, "out"),
	}
	require.NoError(t, os.MkdirAll(n.manifests, 0o700))
	text := "apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\nregistryPullQPS: 0\nruntimeRequestTimeout: 2s\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of nodelet:\n%s", tail(n.log(), 60))
		}
		n.kill()
		require.NoError(t, os.RemoveAll(dir))
	})
	return n
}

// serve makes a runtime in memory answer at the node's endpoint.
func (n *node) serve() *fakecri.Server {
	n.t.Helper()
	s := fakecri.New(fakecri.Options{PullAny: true})
	require.NoError(n.t, s.Listen(strings.TrimPrefix(n.endpoint, "unix://")))
	n.t.Cleanup(s.Close)
	return s
}

// exits runs a command that must fail, and returns what it said.
func exits(t *testing.T, code int, bin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	require.Error(t, err, stderr.String())
	require.Equal(t, code, cmd.ProcessState.ExitCode(), stderr.String())
	return stderr.String()
}

// ask returns the code and the text of an answer.
func (n *node) ask(path string) (code int, text string) {
	n.t.Helper()
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.dir, "run", "nodelet.sock"))
	}}}
	resp, err := c.Get("http://nodelet" + path)
	if err != nil {
		return 0, err.Error()
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(n.t, err)
	require.NoError(n.t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "app:1"}
`

func TestBadInput(t *testing.T) {
	bin := binary(t)
	for name, test := range map[string]func(*testing.T, string){
		"usage": usage, "no agent": noAgent, "configuration": badConfiguration, "second instance": secondInstance, "newer state": newerState,
		"root is a file": rootIsFile, "missing runtime": missingRuntime, "hanging runtime": hangingRuntime, "full disk": fullDisk,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, bin)
		})
	}
}

func usage(t *testing.T, bin string) {
	t.Helper()
	for _, c := range []struct {
		args string
		want string
	}{
		{"bogus", `unknown command "bogus" for "nodelet", see nodelet --help`},
		{"stat", "did you mean status?"},
		{"run extra", `unknown argument "extra" for "nodelet run"`},
		{"status extra", `unknown argument "extra" for "nodelet status"`},
		{"--nope", "unknown flag: --nope"},
		{"run --nope", "unknown flag: --nope"},
		{"run -v loud", `invalid argument "loud" for "-v, --v"`},
		{"status --run-dir", "flag needs an argument: --run-dir"},
	} {
		require.Contains(t, exits(t, 2, bin, strings.Fields(c.args)...), c.want)
	}
	for _, args := range []string{"", "--help", "run --help", "--version"} {
		out, err := exec.CommandContext(t.Context(), bin, strings.Fields(args)...).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "nodelet")
	}
}

func noAgent(t *testing.T, bin string) {
	t.Helper()
	dir := t.TempDir()
	text := exits(t, 69, bin, "status", "--run-dir", dir)
	require.Contains(t, text, "nodelet: nodelet is not running: no socket at "+dir+"/nodelet.sock; start it: systemctl start nodelet, or nodelet run")
}

func badConfiguration(t *testing.T, bin string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.Contains(t, exits(t, 78, bin, "run", "--config", path), "cannot use the configuration: "+path+": cannot read it: no such file or directory")
	const head = "apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\n"
	for text, want := range map[string]string{
		head + "rootDir: /x\n":         `:3:1: unknown field "rootDir" (did you mean rootDirectory?)`,
		head + "rootDirectory: x\n":    `:3:1: rootDirectory: "x" is not an absolute path`,
		"kind: Pod\napiVersion: v1\n":  `:1:7: unknown kind "Pod"; it must say apiVersion: config.nodelet.dev/v1alpha1 and kind: NodeletConfiguration`,
		head + "registryPullQPS: -4\n": ":3:1: registryPullQPS: -4 is less than zero",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.Contains(t, exits(t, 78, bin, "run", "--config", path), "nodelet: cannot use the configuration: "+path+want)
	}
	require.NoError(t, os.WriteFile(path, []byte(head), 0o600))
	require.Contains(t, exits(t, 78, bin, "run", "--config", path, "--runtime-endpoint", ""), "containerRuntimeEndpoint: it must not be empty")
}

func secondInstance(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	n.serve()
	n.apply("web", webPod)
	n.start()
	n.awaitReady("web")
	text := exits(t, 75, bin, "run", "--config", n.config(), "--root-dir", filepath.Join(n.dir, "root"),
		"--run-dir", filepath.Join(n.dir, "run2"), "--static-pod-path", n.dir, "--runtime-endpoint", n.endpoint)
	require.Contains(t, text, "another instance (pid "+strconv.Itoa(n.process.Process.Pid)+") holds "+filepath.Join(n.dir, "root", "lock"))
	p := n.awaitReady("web")
	require.Zero(t, restarts(&p, "main"))

	// One that was killed does not lock anybody out.
	n.kill()
	n.start()
	p = n.awaitReady("web")
	require.Zero(t, restarts(&p, "main"))
}

func newerState(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	cri := n.serve()
	n.apply("web", webPod)
	n.start()
	n.awaitReady("web")
	n.stop()
	path := filepath.Join(n.dir, "root", "state.db")
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("7")) }))
	require.NoError(t, db.Close())
	before, calls := cri.Snapshot().String(), len(cri.Calls())
	const why = "state format 7 is newer than supported 1; pods were not touched"
	n.start()
	n.eventually("readyz says why", func() bool {
		_, text := n.ask("/readyz")
		return strings.Contains(text, "[-]state failed: cannot use "+path+": "+why)
	})
	require.Contains(t, n.output("status"), why)
	n.stop()
	require.Equal(t, before, cri.Snapshot().String())
	require.Len(t, cri.Calls(), calls)
}

func rootIsFile(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	file := filepath.Join(n.dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	text := exits(t, 1, bin, "run", "--config", n.config(), "--root-dir", filepath.Join(file, "root"), "--run-dir", filepath.Join(n.dir, "run"))
	require.Contains(t, text, "nodelet: cannot open "+file)
	text = exits(t, 1, bin, "run", "--config", n.config(), "--root-dir", filepath.Join(n.dir, "root"), "--run-dir", filepath.Join(file, "run"))
	require.Contains(t, text, "nodelet: cannot make the run directory: ")
}

// missingRuntime: the agent waits for its runtime, says so everywhere, and takes
// up work when it comes.
func missingRuntime(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	n.apply("web", webPod)
	n.start()
	n.await("web", "is shown", func(p *corev1.Pod) bool { return p.Status.Reason == "RuntimeNotReady" })
	code, text := n.ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "[-]runtime failed: waiting for the container runtime at "+n.endpoint+": ")
	require.Contains(t, text, "[-]network failed: unknown while the runtime does not answer")
	require.Contains(t, text, "[+]sources ok\n")
	require.Contains(t, text, "[+]state ok\n")
	code, text = n.ask("/readyz?verbose&exclude=runtime&exclude=network&exclude=pleg")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "[+]runtime excluded: ok\n")
	code, _ = n.ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	out := n.output("status")
	require.Contains(t, out, "runtime  "+n.endpoint+": cannot ")
	require.Contains(t, out, "RuntimeNotReady")

	n.serve()
	n.awaitReady("web")
	n.eventually("ready", func() bool { code, text := n.ask("/readyz"); return code == http.StatusOK && text == "ok" })
	out = n.output("status")
	require.Contains(t, out, "events from cri")
	require.Contains(t, out, "source   file "+n.manifests+": 1 pod\n")
}

// hangingRuntime: a runtime that accepts calls and never answers is told as
// such; the agent answers, ends when it is told to, and goes on when the runtime
// does.
func hangingRuntime(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	cri := n.serve()
	hang := func() { cri.Inject(fakecri.Fault{Mode: fakecri.HangBefore, Times: -1}) }
	hang()
	n.apply("web", webPod)
	n.start()
	n.await("web", "is shown", func(p *corev1.Pod) bool { return p.Status.Reason == "RuntimeNotReady" })
	for range 2 {
		code, text := n.ask("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, text, "[-]runtime failed: waiting for the container runtime at "+n.endpoint+": ")
		require.NotContains(t, text, "panic")
	}
	code, _ := n.ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	cri.ClearFaults()
	n.awaitReady("web")

	// The same in the middle of its life.
	hang()
	n.apply("late", strings.ReplaceAll(webPod, "name: web", "name: late"))
	n.eventually("told", func() bool {
		code, text := n.ask("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "[-]runtime failed: ")
	})
	require.Contains(t, n.output("status"), "late")
	p := n.awaitReady("web")
	require.Zero(t, restarts(&p, "main"), "no news is no death")
	n.stop()
	require.Contains(t, n.log(), "Leaving; the pods run on")
	n.start()
	cri.ClearFaults()
	n.awaitReady("late")
	p = n.awaitReady("web")
	require.Zero(t, restarts(&p, "main"))
}

// fullDisk: what runs goes on running, readyz says what is wrong, and nothing is
// lost when there is room again.
func fullDisk(t *testing.T, bin string) {
	t.Helper()
	n := bare(t, bin)
	root := filepath.Join(n.dir, "root")
	require.NoError(t, os.Mkdir(root, 0o700))
	require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=2m,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) })
	cri := n.serve()
	n.apply("web", webPod)
	n.start()
	web := n.awaitReady("web")
	ballast := filepath.Join(root, "ballast")
	err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600)
	require.ErrorIs(t, err, syscall.ENOSPC)
	for i := range 40 {
		name := "more" + strconv.Itoa(i)
		n.apply(name, strings.ReplaceAll(webPod, "name: web", "name: "+name))
	}
	n.eventually("told", func() bool {
		code, text := n.ask("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "[-]state failed: ") && strings.Contains(text, "the disk is full: the file system at "+root+" has ")
	})
	p := n.awaitReady("web")
	require.Equal(t, containerID(&web, "main"), containerID(&p, "main"))
	n.remove("web") // what is to end ends
	n.eventually("web is gone", func() bool {
		for _, b := range cri.Snapshot().Sandboxes {
			if b.Pod == "web" {
				return false
			}
		}
		return true
	})
	require.NoError(t, os.Remove(ballast))
	for i := range 40 {
		n.awaitReady("more" + strconv.Itoa(i))
	}
	n.eventually("well again", func() bool { code, _ := n.ask("/readyz"); return code == http.StatusOK })
	n.kill()
	n.start()
	for i := range 40 {
		n.awaitReady("more" + strconv.Itoa(i))
	}
	require.NotContains(t, n.events(), "Adopted", "all are on record by now")
}
