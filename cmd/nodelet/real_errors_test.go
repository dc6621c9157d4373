package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// These tests produce, with the whole agent and a real containerd, the errors
// that people meet first, and compare what is said. Others of that catalogue are
// elsewhere: check in check_real_test.go (cgroup driver), fields of the
// configuration in testdata/script/config_errors.txtar, a state of a newer
// version in bad_input_test.go (it needs no runtime).

// TestRealErrorsOfRuntime: the runtime is away, has no CRI, or no network.
func TestRealErrorsOfRuntime(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		t.Run("containerd is absent at the start", func(t *testing.T) {
			require.NoError(t, c.Kill9(t.Context()))
			require.NoError(t, os.Remove(c.Address()))
			n.start()
			why := "cannot call the container runtime: no socket at " + c.Address() + "; is it started, and is containerRuntimeEndpoint right?"
			n.eventually("readyz names it", func() bool {
				_, text := n.ask("/readyz")
				return strings.Contains(text, "[-]runtime failed: waiting for the container runtime at "+c.Endpoint()+": "+why+"\n")
			})
			require.Contains(t, n.output("status"), "runtime  "+c.Endpoint()+": "+why+"\n")
			n.eventually("the log tells", func() bool { return strings.Contains(n.log(), "Waiting for the container runtime") })
			require.Equal(t, 1, strings.Count(n.log(), "Waiting for the container runtime"), "a line for each minute")
			code, _ := n.ask("/healthz")
			require.Equal(t, 200, code, "it stays up")
		})
		t.Run("containerd has no CRI", func(t *testing.T) {
			const why = "containerd answers but has no CRI service; remove cri from disabled_plugins in /etc/containerd/config.toml"
			says := func(prefix string) func() bool {
				return func() bool {
					_, text := n.ask("/readyz")
					return strings.Contains(text, "[-]runtime failed: waiting for the container runtime at "+c.Endpoint()+": "+prefix+why+"\n")
				}
			}
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{DisableCRI: true}))
			n.eventually("readyz names it", says("cannot call the container runtime: "))
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{}))
			n.apply("worker", worker)
			p := n.awaitReady("worker")
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{DisableCRI: true}))
			n.eventually("readyz names it in the middle of work", says("cannot get the version of the container runtime: "))
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{}))
			n.eventually("it is well again", func() bool { code, _ := n.ask("/readyz"); return code == 200 })
			p2 := n.awaitReady("worker")
			require.Equal(t, containerID(&p, "main"), containerID(&p2, "main"))
		})
		t.Run("no network configuration", func(t *testing.T) {
			conf, err := os.ReadFile(c.CNIConfig())
			require.NoError(t, err)
			require.NoError(t, os.Remove(c.CNIConfig()))
			n.eventually("readyz names the directory", func() bool {
				_, text := n.ask("/readyz")
				return strings.Contains(text, "[-]network failed: the container runtime says its network is not ready: ") && strings.Contains(text, filepath.Dir(c.CNIConfig()))
			})
			n.apply("lonely", webOn(false, "lonely"))
			p := n.await("lonely", "waits", func(p *corev1.Pod) bool { return p.Status.Reason == "NetworkNotReady" })
			require.Equal(t, corev1.PodPending, p.Status.Phase)
			require.Contains(t, p.Status.Message, ": the network of the container runtime is not ready: ")
			require.Contains(t, p.Status.Message, filepath.Dir(c.CNIConfig()), "the directory that was searched")
			require.Contains(t, n.events(), "default/lonely NetworkNotReady cannot create the sandbox of pod default/lonely: the network")
			n.apply("hosted", webOn(true, "hosted"))
			n.awaitReady("hosted")
			require.NoError(t, os.WriteFile(c.CNIConfig(), conf, 0o600)) // containerd takes no notice of a file that is moved there
			n.eventually("the network is back", func() bool { code, _ := n.ask("/readyz"); return code == 200 })
			n.kill() // it would wait for its back-off
			n.start()
			n.awaitReady("lonely")
		})
	})
}

// webOn is a pod with a network of its own, or on the host's.
func webOn(host bool, name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: %t
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "nodelet.local/busybox:1", command: [sleep, infinity]}
`, name, host)
}

// TestRealErrorsOfPods: what the author of a pod can do something about.
func TestRealErrorsOfPods(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		n.start()
		t.Run("an image", func(t *testing.T) {
			registry, err := rig.NewRegistry(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, registry.Close()) })
			_, err = registry.Push(t.Context(), "shop/private:1", busybox(t, "private"))
			require.NoError(t, err)
			registry.Protect("shop/private", "user", "secret")
			at := registry.Address()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			nobody := l.Addr().String()
			require.NoError(t, l.Close())
			for name, want := range map[string]struct{ image, reason, text string }{
				"absent": {at + "/shop/absent:1", "ErrImagePull", "not found: see that the name is right and that " + at + " has it: "},
				"secret": {at + "/shop/private:1", "ErrImagePull", "unauthorized: give credentials for " + at + " in one of registryConfigFiles: "},
				"away":   {nobody + "/shop/web:1", "RegistryUnavailable", "registry unreachable: see that " + nobody + " can be reached from this machine, or bring the image with nodelet images import: "},
			} {
				n.apply(name, strings.ReplaceAll(webOn(false, name), rig.BusyboxImage, want.image))
				text := fmt.Sprintf("cannot pull image %q: %s", want.image, want.text)
				n.await(name, "says why", func(p *corev1.Pod) bool {
					s := p.Status.ContainerStatuses
					return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == want.reason && strings.HasPrefix(s[0].State.Waiting.Message, text)
				})
				require.Contains(t, n.events(), fmt.Sprintf("default/%s %s Failed to pull image %q: %s", name, "Failed", want.image, text))
				n.remove(name)
			}
			require.Contains(t, n.events(), "no credentials for registry "+at+" are configured")
		})
		t.Run("a field that is not supported", func(t *testing.T) {
			n.apply("block", strings.Replace(webOn(false, "block"), "command:", "volumeDevices: [{name: disk, devicePath: /dev/xvda}], command:", 1))
			n.eventually("the field is named", func() bool { return strings.Contains(n.events(), "spec.containers[0].volumeDevices") })
			n.remove("block")
		})
		t.Run("a port of the host", func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			port := l.Addr().(*net.TCPAddr).Port
			n.apply("port", strings.Replace(webOn(false, "port"), "command:", fmt.Sprintf("ports: [{containerPort: 80, hostPort: %d}], command:", port), 1))
			comm, err := os.ReadFile("/proc/self/comm")
			require.NoError(t, err)
			want := fmt.Sprintf("cannot use host port %d/TCP for pod default/port: a process of the machine listens on it: %s (pid %d)", port, strings.TrimSpace(string(comm)), os.Getpid())
			n.await("port", "names the process", func(p *corev1.Pod) bool { return p.Status.Reason == "HostPortConflict" && p.Status.Message == want })
			n.eventually("as an event too", func() bool { return strings.Contains(n.events(), want) })
			n.remove("port")
			n.awaitGone("port")
		})
	})
}

// TestRealErrorsOfAgents: who may ask, who else is there, and a disk that is
// full.
func TestRealErrorsOfAgents(t *testing.T) {
	bin := binary(t)
	c := rig.ForTest(t, rig.V2)
	n := newNode(t, bin, c.Endpoint())
	root := filepath.Join(n.dir, "root")
	require.NoError(t, os.Mkdir(root, 0o700))
	require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=2m,mode=0700"))
	t.Cleanup(func() {
		n.clear()
		n.stop()
		require.NoError(t, unix.Unmount(root, unix.MNT_DETACH))
	})
	socket := filepath.Join(n.dir, "run", "nodelet.sock")

	t.Run("no agent runs", func(t *testing.T) {
		require.Equal(t, "nodelet: nodelet is not running: no socket at "+socket+"; start it: systemctl start nodelet, or nodelet run\n",
			exits(t, exitUnavailable, bin, "status", "--run-dir", filepath.Dir(socket)))
	})
	n.start()
	n.apply("worker", worker)
	n.awaitReady("worker")
	t.Run("not root", func(t *testing.T) {
		// Where the program lies is for root alone, so it is opened by us.
		program, err := os.Open(bin)
		require.NoError(t, err)
		defer func() { require.NoError(t, program.Close()) }()
		require.NoError(t, os.Chmod(n.dir, 0o711)) //nolint:gosec // as /run has it
		ask := func() (string, int) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3", "status", "--run-dir", filepath.Dir(socket))
			cmd.ExtraFiles = []*os.File{program}
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, _ := cmd.CombinedOutput() // the code says how it ended
			return string(out), cmd.ProcessState.ExitCode()
		}
		text, code := ask()
		require.Equal(t, "nodelet: cannot open "+socket+": permission denied; run with sudo or join group nodelet\n", text)
		require.Equal(t, exitFailure, code)
	})
	t.Run("two agents", func(t *testing.T) {
		text := exits(t, exitTemporary, bin, "run", "--config", n.config(), "--root-dir", root, "--run-dir", filepath.Join(n.dir, "run2"),
			"--static-pod-path", n.manifests, "--runtime-endpoint", c.Endpoint())
		require.Contains(t, text, fmt.Sprintf("nodelet: cannot use %s/state.db: another instance (pid %d) holds %s/lock\n", root, n.process.Process.Pid, root))
	})
	t.Run("a full disk", func(t *testing.T) {
		ballast := filepath.Join(root, "ballast")
		require.ErrorIs(t, os.WriteFile(ballast, make([]byte, 4<<20), 0o600), syscall.ENOSPC)
		for i := range 20 {
			name := fmt.Sprintf("more%d", i)
			n.apply(name, webOn(true, name))
		}
		want := "[-]state failed: cannot write " + root + "/state.db: the disk is full: the file system at " + root + " has "
		n.eventually("readyz names file, file system and what is free", func() bool {
			_, text := n.ask("/readyz")
			return strings.Contains(text, want) && strings.Contains(text, " bytes free of 2.0 MiB: ") && strings.Contains(text, "; make room there")
		})
		n.awaitReady("worker")
		require.Equal(t, "fail", string(n.anyChecked()["disk"].Status))
		require.NoError(t, os.Remove(ballast))
		n.eventually("it is well again", func() bool { code, _ := n.ask("/readyz"); return code == 200 })
	})
}
