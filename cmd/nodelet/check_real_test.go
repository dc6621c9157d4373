package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/preflight"
	"nodelet.dev/nodelet/internal/rig"
)

// checked runs nodelet check for a node as a program sees it.
func (n *node) checked(code int) map[string]preflight.Result {
	n.t.Helper()
	cmd := n.command("check", "-o", "json", "--config", n.config(), "--root-dir", filepath.Join(n.dir, "root"),
		"--pod-logs-dir", filepath.Join(n.dir, "logs"), "--runtime-endpoint", n.endpoint)
	out, err := cmd.Output()
	if code == 0 {
		require.NoError(n.t, err, string(out))
	}
	require.Equal(n.t, code, cmd.ProcessState.ExitCode(), string(out))
	var list []preflight.Result
	require.NoError(n.t, json.Unmarshal(out, &list))
	results := map[string]preflight.Result{}
	for _, r := range list {
		require.NotContains(n.t, results, r.Name, "a line for each check")
		require.Equal(n.t, r.Status == preflight.OK, r.Fix == "", "%s: %s", r.Name, r.Message)
		results[r.Name] = r
	}
	return results
}

// failing returns what fails, as text.
func failing(results map[string]preflight.Result) map[string]string {
	out := map[string]string{}
	for name, r := range results {
		if r.Status == preflight.Fail {
			out[name] = r.Message + " | fix: " + r.Fix
		}
	}
	return out
}

// TestRealCheck looks at private containerds that are well, and then have what
// administrators make of them. Where systemd is the init, cgroupfs beside it is
// a failure of the machine of the test, and its own driver none.
func TestRealCheck(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		toml, cni := filepath.Join(c.Dir(), "config.toml"), filepath.Dir(c.CNIConfig())
		_, err := os.Stat("/run/systemd/system")
		systemd := err == nil

		t.Run("well", func(t *testing.T) {
			code := 0
			if systemd {
				code = 1
			}
			got := n.checked(code)
			require.Subset(t, map[string]string{"cgroup driver": ""}, keys(failing(got)))
			for name, want := range map[string]string{
				"config":         n.config(),
				"root":           "running as uid 0",
				"forwarding":     "net.ipv4.ip_forward is 1",
				"root directory": filepath.Join(n.dir, "root") + ", not used by an agent yet",
				"runtime socket": c.Address(),
				"runtime status": "ready",
				"sandbox image":  rig.PauseImage,
				"cni config":     "network " + bridge(t, c) + " from " + c.CNIConfig(),
				"cni plugins":    "bridge, host-local, loopback, portmap in /usr/lib/cni",
				"network":        "ready",
				"other agents":   "none on this runtime",
			} {
				require.Equal(t, preflight.Result{Name: name, Status: preflight.OK, Message: want}, got[name])
			}
			if c.Flavor() == rig.V2 {
				require.Equal(t, "containerd 2.4.2+unknown, CRI v1", got["runtime"].Message)
				require.Equal(t, "from CRI", got["events"].Message)
			} else {
				require.Regexp(t, `^containerd 1\.6\.\S+, CRI v1; containerd 1\.6 has had no fixes from its authors since August 2025$`, got["runtime"].Message)
				require.Equal(t, "from containerd, whose CRI has none before 1.7", got["events"].Message)
			}
			require.Contains(t, got["cgroup driver"].Message, "containerd uses cgroupfs (SystemdCgroup = false in "+toml+"), ")
			require.Regexp(t, regexp.MustCompile(`^[0-9.]+ [GTM]iB of [0-9.]+ [GTM]iB free.* on / for `+n.dir+`/root, `+n.dir+`/logs, `+c.Dir()+`/root$`), got["disk"].Message)
			entries, err := os.ReadDir(n.dir)
			require.NoError(t, err)
			require.Len(t, entries, 3, "nothing was made: config.yaml, manifests, out")
		})
		t.Run("for people", func(t *testing.T) {
			out, _ := n.command("check", "--config", n.config(), "--runtime-endpoint", n.endpoint).Output() // whether all is well, see above
			require.Regexp(t, `(?m)^ok    root            running as uid 0$`, string(out))
			require.Regexp(t, `(?m)^ok    runtime socket  `+c.Address()+`$`, string(out))
			require.Regexp(t, `\n\n1[0-9] checks: [0-9]+ ok, [0-9] warn, [01] fail\n$`, string(out))
		})
		t.Run("the driver of systemd", func(t *testing.T) {
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{SystemdCgroup: true}))
			if systemd {
				require.Equal(t, preflight.OK, n.checked(0)["cgroup driver"].Status)
				return
			}
			section := map[rig.Flavor]string{rig.Debian: `plugins."io.containerd.grpc.v1.cri"`, rig.V2: `plugins."io.containerd.cri.v1.runtime"`}[c.Flavor()]
			require.Equal(t, map[string]string{
				"cgroup driver": "containerd uses systemd (SystemdCgroup = true in " + toml + "), but the init of this machine is " + initName(t) + " (/proc/1/comm): no container can start" +
					" | fix: set SystemdCgroup = false in " + toml + " under [" + section + ".containerd.runtimes.runc.options], then: systemctl restart containerd",
			}, failing(n.checked(1)))
		})
		t.Run("no CRI", func(t *testing.T) {
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{DisableCRI: true}))
			require.Equal(t, map[string]string{
				"runtime": "containerd answers but has no CRI service | fix: remove cri from disabled_plugins in " + toml +
					", then: systemctl restart containerd; where it is not there, journalctl -u containerd says why",
			}, failing(n.checked(1)))
			require.NoError(t, c.Reconfigure(t.Context(), rig.Settings{}))
		})
		t.Run("no network configuration", func(t *testing.T) {
			aside := filepath.Join(c.Dir(), "aside")
			require.NoError(t, os.Rename(c.CNIConfig(), aside))
			got := failing(n.checked(1))
			delete(got, "cgroup driver")
			require.Equal(t, map[string]string{
				"cni config": "no network configuration in " + cni + " | fix: write one: " + cni + "/10-bridge.conflist with the plugins bridge and portmap, or install a network add-on",
			}, got)
			require.NoError(t, os.WriteFile(c.CNIConfig(), []byte("{\n  \"plugins\": [}"), 0o600))
			got = failing(n.checked(1))
			require.Contains(t, got["cni config"], "cannot use "+c.CNIConfig()+":2:15: invalid character '}' looking for beginning of value | fix: ")
			require.NoError(t, os.Rename(aside, c.CNIConfig()))
			require.NoError(t, c.Restart(t.Context()))
		})
		t.Run("no sandbox image", func(t *testing.T) {
			ctr(t, c, "images", "rm", "--sync", rig.PauseImage)
			n.eventually("it is gone", func() bool { return n.anyChecked()["sandbox image"].Status == preflight.Warn })
			want := "it is not on this machine: the first pod pulls it, or fails where there is no network"
			if c.Flavor() == rig.Debian {
				want = rig.PauseImage + " is not on this machine: the first pod pulls it, or fails where there is no network"
			}
			require.Equal(t, want, n.anyChecked()["sandbox image"].Message)
		})
		t.Run("an agent runs", func(t *testing.T) {
			n.start()
			n.eventually("it answers", func() bool { return n.pods() != nil })
			require.Equal(t, preflight.Result{
				Name: "root directory", Status: preflight.Warn,
				Message: fmt.Sprintf("another instance (pid %d) holds %s/root/lock", n.process.Process.Pid, n.dir),
				Fix:     "nothing, if that is the nodelet of this machine; else end it, or give another directory with --root-dir",
			}, n.anyChecked()["root directory"])
			require.Equal(t, "none on this runtime", n.anyChecked()["other agents"].Message, "it is not another one")

			second := newNode(t, bin, c.Endpoint())
			got := second.anyChecked()["other agents"]
			require.Equal(t, preflight.Fail, got.Status)
			require.Equal(t, fmt.Sprintf("another nodelet (pid %d) uses the same runtime with another root directory: each takes the pods of the other for its own", n.process.Process.Pid), got.Message)
			n.stop()
			require.Equal(t, filepath.Join(n.dir, "root")+", in use by no agent", n.anyChecked()["root directory"].Message)
		})
		t.Run("nobody at the socket", func(t *testing.T) {
			require.NoError(t, c.Kill9(t.Context()))
			require.Equal(t, map[string]string{
				"runtime socket": "nobody answers at " + c.Address() + " | fix: start the runtime: systemctl start containerd; its last words: journalctl -u containerd -n 20",
			}, failing(n.checked(1)))
			require.NoError(t, os.Remove(c.Address()))
			require.Equal(t, map[string]string{
				"runtime socket": "no socket at " + c.Address() + " | fix: start the runtime: systemctl start containerd; or name its socket with --runtime-endpoint",
			}, failing(n.checked(1)))
			require.NoError(t, c.Restart(t.Context()))
		})
	})
}

// anyChecked is checked where the rest of the machine does not matter.
func (n *node) anyChecked() map[string]preflight.Result {
	n.t.Helper()
	out, _ := n.command("check", "-o", "json", "--config", n.config(), "--root-dir", filepath.Join(n.dir, "root"), "--runtime-endpoint", n.endpoint).Output()
	var list []preflight.Result
	require.NoError(n.t, json.Unmarshal(out, &list), string(out))
	results := map[string]preflight.Result{}
	for _, r := range list {
		results[r.Name] = r
	}
	return results
}

func keys(m map[string]string) map[string]string {
	out := map[string]string{}
	for name := range m {
		out[name] = ""
	}
	return out
}

// bridge returns the name of the rig's network.
func bridge(t *testing.T, c *rig.Containerd) string {
	t.Helper()
	text, err := os.ReadFile(c.CNIConfig())
	require.NoError(t, err)
	var conf struct{ Name string }
	require.NoError(t, json.Unmarshal(text, &conf))
	return conf.Name
}

func initName(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/1/comm")
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}
