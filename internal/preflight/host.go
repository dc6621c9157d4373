package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func root(m Machine) Result {
	if m.UID != 0 {
		return fail("root", "run it with sudo", "running as uid %d: nodelet run needs root, and some checks see less without", m.UID)
	}
	return ok("root", "running as uid 0")
}

// kernel asks for pidfds, without which a container that the runtime fails to
// stop stays.
func kernel(m Machine) Result {
	var major, minor int
	if _, err := fmt.Sscanf(m.Kernel, "%d.%d", &major, &minor); err != nil {
		return warn("kernel", "see that it is 5.3 or newer: uname -r", "%q is no release that can be understood", m.Kernel)
	}
	if major < 5 || (major == 5 && minor < 3) {
		return warn("kernel", "boot a kernel of 5.3 or newer", "%s has no pidfd_open: nodelet cannot kill a container that the runtime fails to stop", m.Kernel)
	}
	return ok("kernel", "%s", m.Kernel)
}

// firstYear is before nodelet existed: an earlier clock was never set.
const firstYear = 2020

func clock(m Machine) Result {
	const name = "clock"
	now := m.Now.UTC().Format(time.DateTime) + " UTC"
	if m.Now.UTC().Year() < firstYear {
		return fail(name, "set the clock: timedatectl set-ntp true, or date -s; certificates of registries are not valid before they were made",
			"it says %s and was never set", now)
	}
	switch synced, err := m.Synchronised(); {
	case err != nil:
		return warn(name, "see whether it is right: date -u", "%s; %v", now, err)
	case !synced:
		return warn(name, "let something keep it right: timedatectl set-ntp true, or install chrony", "%s, and the kernel knows of nothing that keeps it right", now)
	}
	return ok(name, "%s, synchronised", now)
}

// forwarding is what a bridge or router plugin relies on.
func forwarding(m Machine) Result {
	const name, path = "forwarding", "/proc/sys/net/ipv4/ip_forward"
	switch value := m.text(path); value {
	case "1":
		return ok(name, "net.ipv4.ip_forward is 1")
	case "":
		return warn(name, "see that IPv4 forwarding is on: sysctl net.ipv4.ip_forward", "cannot read %s", path)
	default:
		return fail(name, "sysctl -w net.ipv4.ip_forward=1, and the same setting in /etc/sysctl.d/99-nodelet.conf to keep it",
			"net.ipv4.ip_forward is %s: pods reach nothing outside of this machine", value)
	}
}

// cgroupVersion is 2, or 1 also for the hybrid, in which containers use
// version 1; zero when nothing is mounted.
func cgroupVersion(m Machine) (version int, hybrid bool) {
	for line := range strings.Lines(m.text("/proc/self/mountinfo")) {
		before, after, found := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(kind) == 0 {
			continue
		}
		switch at := fields[4]; {
		case kind[0] == "cgroup2" && at == "/sys/fs/cgroup":
			return 2, false
		case kind[0] == "cgroup":
			version = 1
		case kind[0] == "cgroup2":
			hybrid = true
		}
	}
	return version, hybrid && version == 1
}

// cgroups asks for the controllers that limits of pods need.
func cgroups(m Machine) Result {
	const name = "cgroup"
	version, hybrid := cgroupVersion(m)
	var have []string
	var fix string
	switch version {
	case 0:
		return fail(name, "mount cgroup2 on /sys/fs/cgroup, as systemd does at boot", "no cgroup file system is mounted on /sys/fs/cgroup")
	case 2:
		have = strings.Fields(m.text("/sys/fs/cgroup/cgroup.controllers"))
		fix = "boot with cgroup_enable=CONTROLLER on the kernel's command line (on a Raspberry Pi: in /boot/firmware/cmdline.txt)"
	default:
		for line := range strings.Lines(m.text("/proc/cgroups")) {
			if f := strings.Fields(line); len(f) == 4 && f[1] != "0" && f[3] == "1" {
				have = append(have, f[0])
			}
		}
		fix = "boot with cgroup_enable=CONTROLLER on the kernel's command line"
	}
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fail(name, strings.ReplaceAll(fix, "CONTROLLER", missing[0]), "version %d lacks %s, so limits of pods cannot hold", version, strings.Join(missing, ", "))
	}
	if version == 2 {
		return ok(name, "version 2 with cpu, memory, pids")
	}
	kind := "version 1"
	if hybrid {
		kind = "version 1, hybrid with 2"
	}
	return warn(name, "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
		"%s; it works, but runtimes give it up: containerd no later than May 2029", kind)
}
