package rig

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// binaries are the absolute paths that an instance runs.
type binaries struct {
	Containerd string `json:"containerd"`
	Ctr        string `json:"ctr"`
	Runc       string `json:"runc"`
}

// Check reports everything that the machine lacks for the flavor, each with the Debian package that brings it.
func Check(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	_, err = findBinaries(o)
	return err
}

func findBinaries(o Options) (binaries, error) {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("cannot start containerd: it needs root"))
	}
	find := func(name, pkg string) string {
		path, err := lookPath(name)
		if err != nil {
			missing = append(missing, fmt.Errorf("cannot find %s: install the Debian package %s", name, pkg))
		}
		return path
	}
	var b binaries
	if o.Flavor == V2 {
		for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
				missing = append(missing, fmt.Errorf("cannot find %s: build it with `make containerd` (go install "+
					"github.com/containerd/containerd/v2/cmd/%s@v2.4.2)", filepath.Join(o.BinDir, name), name))
			}
		}
		b.Containerd, b.Ctr = filepath.Join(o.BinDir, "containerd"), filepath.Join(o.BinDir, "ctr")
	} else {
		b.Containerd, b.Ctr = find("containerd", "containerd"), find("ctr", "containerd")
		find("containerd-shim-runc-v2", "containerd")
	}
	b.Runc = find("runc", "runc")
	find("iptables", "iptables")
	find("ip", "iproute2")
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if _, err := os.Stat(filepath.Join(cniPluginDir, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("cannot find the CNI plugin %s in %s: install the Debian package "+
				"containernetworking-plugins", plugin, cniPluginDir))
		}
	}
	if err := checkBusybox(); err != nil {
		missing = append(missing, err)
	}
	return b, errors.Join(missing...)
}

// lookPath also looks where Debian puts system programs: a login shell's PATH may lack them.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if _, statErr := os.Stat(filepath.Join(dir, name)); statErr == nil {
			return filepath.Join(dir, name), nil
		}
	}
	return "", err
}

func checkBusybox() error {
	file, err := elf.Open(busyboxPath)
	if err != nil {
		return fmt.Errorf("cannot read %s: install the Debian package busybox-static: %w", busyboxPath, err)
	}
	defer func() { _ = file.Close() }()
	for _, prog := range file.Progs {
		if prog.Type == elf.PT_INTERP {
			return fmt.Errorf("cannot use %s: it is linked dynamically; install the Debian package busybox-static", busyboxPath)
		}
	}
	return nil
}

// mayLowerOOMScore tells whether this process has CAP_SYS_RESOURCE, without which runc cannot set a sandbox's
// oom_score_adj below its own and no sandbox starts.
func mayLowerOOMScore() bool {
	const capSysResource = 24
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<capSysResource) != 0
		}
	}
	return false
}
