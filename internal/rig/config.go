package rig

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// containerd 1.6 reads version 2; 2.4 reads version 3, in which CRI is three plugins.
const configDebian = `version = 2
root = %[1]q
state = %[2]q
disabled_plugins = [%[11]s]

[grpc]
  address = %[3]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[5]q
  restrict_oom_score_adj = %[6]t
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[7]q
    conf_dir = %[8]q

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %[9]q

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = %[12]t
        Root = %[10]q
`

const configV2 = `version = 3
root = %[1]q
state = %[2]q
disabled_plugins = [%[11]s]

[grpc]
  address = %[3]q

[plugins.'io.containerd.internal.v1.opt']
  path = %[4]q

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %[9]q

  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[5]q

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %[6]t
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[7]q]
    conf_dir = %[8]q

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = %[12]t
      Root = %[10]q

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
`

const cniConfigName = "10-nodelet.conflist"

// layout names what lies where in an instance's directory.
type layout string

func (l layout) file(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

func (l layout) socket() string   { return l.file("containerd.sock") }
func (l layout) state() string    { return l.file("state") }
func (l layout) runcRoot() string { return l.file("runc") }
func (l layout) log() string      { return l.file("containerd.log") }
func (l layout) config() string   { return l.file("config.toml") }
func (l layout) cniConf() string  { return l.file("cni", "net.d") }

// Settings are faults of an administrator, for tests of what is said about them. The zero value has none.
type Settings struct {
	// DisableCRI disables the CRI plug-in, as some packages of containerd do.
	DisableCRI bool
	// SystemdCgroup sets the cgroup driver that cannot work without systemd. The default is cgroupfs, also where systemd
	// runs: a private instance must not depend on who is PID 1.
	SystemdCgroup bool
}

func writeConfig(l layout, flavor Flavor, s Settings) error {
	format := configDebian
	if flavor == V2 {
		format = configV2
	}
	disabled := ""
	if s.DisableCRI {
		disabled = strconv.Quote("io.containerd.grpc.v1.cri")
	}
	text := fmt.Sprintf(format, l.file("root"), l.state(), l.socket(), l.file("opt"), PauseImage, !mayLowerOOMScore(),
		cniPluginDir, l.cniConf(), "overlayfs", l.runcRoot(), disabled, s.SystemdCgroup)
	if err := os.WriteFile(l.config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("cannot write containerd's configuration: %w", err)
	}
	return nil
}

func writeCNI(l layout, n network, masquerade bool) error {
	conf := map[string]any{
		"cniVersion": "0.4.0",
		"name":       n.Bridge,
		"plugins": []any{
			map[string]any{
				"type":        "bridge",
				"bridge":      n.Bridge,
				"isGateway":   true,
				"ipMasq":      masquerade,
				"hairpinMode": true,
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": l.file("cni", "data"),
					"ranges":  []any{[]any{map[string]any{"subnet": n.Subnet}}},
					"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{
				"type":         "portmap",
				"capabilities": map[string]bool{"portMappings": true},
				"snat":         true,
			},
		},
	}
	data, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the CNI configuration: %w", err)
	}
	if err := os.MkdirAll(l.cniConf(), 0o755); err != nil {
		return fmt.Errorf("cannot write the CNI configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(l.cniConf(), cniConfigName), data, 0o600); err != nil {
		return fmt.Errorf("cannot write the CNI configuration: %w", err)
	}
	return nil
}

// pathEnv puts the flavor's own binaries first: containerd finds its shim on PATH.
func pathEnv(b binaries) []string {
	path := filepath.Dir(b.Containerd) + ":" + filepath.Dir(b.Runc) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	return []string{"PATH=" + path, "HOME=/root", "TMPDIR=" + os.TempDir(), "GOMAXPROCS=" + strconv.Itoa(maxProcs)}
}

// maxProcs bounds the daemon's parallelism, so that a test machine's own work keeps some processor time.
const maxProcs = 4
