package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Flavor says which build of containerd an instance runs.
type Flavor string

const (
	// Debian is the containerd on PATH, 1.6.20 on Debian 12.
	Debian Flavor = "debian"
	// V2 is containerd 2.4.2, built into bin/containerd-2.4.2 of the repository.
	V2 Flavor = "v2"
)

const (
	// PauseImage is the sandbox image of every instance.
	PauseImage = "nodelet.local/pause:1"
	// BusyboxImage is the image that every instance has imported when it is ready.
	BusyboxImage = "nodelet.local/busybox:1"

	cniPluginDir = "/usr/lib/cni"
	busyboxPath  = "/bin/busybox"
)

// Options of one instance. The zero value of every field but Dir has a meaning.
type Options struct {
	// Dir holds everything of the instance and is removed by Stop. It must be absolute and short: unix sockets live in it.
	Dir string
	// Flavor defaults to Debian.
	Flavor Flavor
	// BinDir holds containerd, containerd-shim-runc-v2 and ctr of the V2 flavor. Default: bin/containerd-2.4.2 of the
	// repository that the working directory belongs to.
	BinDir string
	// Masquerade lets pods reach the world outside the machine. It costs iptables calls for every sandbox.
	Masquerade bool
	// Owned ties the instance to this process: when the process has died without stopping it, [Sweep] does.
	Owned bool
}

func (o Options) withDefaults() (Options, error) {
	if !filepath.IsAbs(o.Dir) {
		return o, fmt.Errorf("cannot start containerd in %q: the directory must be an absolute path", o.Dir)
	}
	// The socket with the longest name, containerd.sock.ttrpc, must fit in 107 bytes.
	if len(o.Dir) > 80 {
		return o, fmt.Errorf("cannot start containerd in %q: the path is longer than 80 bytes and unix sockets would not fit", o.Dir)
	}
	switch o.Flavor {
	case "":
		o.Flavor = Debian
	case Debian:
	case V2:
		if o.BinDir == "" {
			root, err := repoRoot()
			if err != nil {
				return o, err
			}
			o.BinDir = filepath.Join(root, "bin", "containerd-2.4.2")
		}
	default:
		return o, fmt.Errorf("cannot start containerd: unknown flavor %q (want %q or %q)", o.Flavor, Debian, V2)
	}
	return o, nil
}

// repoRoot walks up from the working directory: go test runs in the package's directory, make in the root.
func repoRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module nodelet.dev/nodelet\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("cannot find the repository above %s: set Options.BinDir", start)
		}
	}
}
