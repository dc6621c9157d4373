package preflight

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The cgroup drivers.
const (
	driverSystemd  = "systemd"
	driverCgroupfs = "cgroupfs"
)

// driver compares who manages the cgroups of containers with who manages those
// of the machine.
//
// Where systemd is the init and cgroups are version 2, a runtime that does it by
// itself is a failure, though containers start: the tree then has two writers,
// of which systemd takes itself for the only one, so limits of pods can be lost
// when units are reloaded; and to change the driver later all pods have to be
// made anew. With version 1 it has long been usual, and is a warning. The
// systemd driver without systemd is a failure because no container starts.
func driver(ctx context.Context, m Machine, cri Runtime, r found) Result {
	const name = "cgroup driver"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uses := driverCgroupfs
	response, err := cri.RuntimeConfig(ctx)
	switch {
	case err == nil:
		if response.GetLinux() != nil && response.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
			uses = driverSystemd
		}
	case status.Code(err) != codes.Unimplemented:
		return fail(name, "look at its log: journalctl -u containerd", "cannot get it from %s: %s", r.name, said(err))
	case r.config.Containerd.DefaultRuntimeName == "":
		return warn(name, "see that it is systemd where systemd is the init", "%s does not tell which one it uses", r.name)
	case r.config.systemdCgroup():
		uses = driverSystemd
	}
	version, _ := cgroupVersion(m)
	theirs := fmt.Sprintf("%s uses %s (%s)", r.name, uses, r.driverSetting(uses))
	switch {
	case uses == driverSystemd && !m.systemd():
		return fail(name, r.driverFix(driverCgroupfs), "%s, but the init of this machine is %s (/proc/1/comm): no container can start", theirs, m.init())
	case uses == driverSystemd || !m.systemd():
		return ok(name, "%s, and the init of this machine is %s", theirs, m.init())
	case version == 2:
		return fail(name, r.driverFix(driverSystemd), "%s, but systemd manages the cgroups of this machine (/run/systemd/system): limits can get lost", theirs)
	default:
		return warn(name, r.driverFix(driverSystemd), "%s, but systemd manages the cgroups of this machine (/run/systemd/system)", theirs)
	}
}

// driverSetting names the setting that makes the runtime use a driver.
func (r *found) driverSetting(uses string) string {
	if r.name == "cri-o" {
		return fmt.Sprintf("cgroup_manager = %q in /etc/crio/crio.conf", uses)
	}
	return fmt.Sprintf("SystemdCgroup = %t in %s", uses == driverSystemd, r.file)
}

func (r *found) driverFix(want string) string {
	if r.name == "cri-o" {
		return fmt.Sprintf("set %s and restart it: systemctl restart crio", r.driverSetting(want))
	}
	section := `plugins."io.containerd.grpc.v1.cri"`
	if major, _, known := parseVersion(r.version); known && major >= 2 {
		section = `plugins."io.containerd.cri.v1.runtime"`
	}
	return fmt.Sprintf("set %s under [%s.containerd.runtimes.runc.options], then: systemctl restart containerd", r.driverSetting(want), section)
}

// sandboxImage looks for the image of the process that holds a sandbox. It is a
// warning, since the runtime pulls it with the first pod where it has a network.
func sandboxImage(ctx context.Context, cri Runtime, config criConfig) Result {
	const name = "sandbox image"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if image := config.SandboxImage; image != "" {
		found, err := cri.ImageStatus(ctx, image)
		switch {
		case err != nil:
			return fail(name, "look at the runtime's log: journalctl -u containerd", "cannot look up %s: %s", image, said(err))
		case found == nil:
			return warn(name, fmt.Sprintf("pull it: ctr -n k8s.io images pull %s; or without a network: nodelet images import ARCHIVE", image),
				"%s is not on this machine: the first pod pulls it, or fails where there is no network", image)
		}
		return ok(name, "%s", image)
	}
	// Newer runtimes do not tell the name, but pin the image once it is there.
	images, err := cri.Images(ctx)
	if err != nil {
		return fail(name, "look at the runtime's log: journalctl -u containerd", "cannot list the images: %s", said(err))
	}
	for _, i := range images {
		if i.GetPinned() && len(i.GetRepoTags()) > 0 {
			return ok(name, "%s", i.GetRepoTags()[0])
		}
	}
	return warn(name, "pull the one that containerd config dump names as sandbox: ctr -n k8s.io images pull IMAGE; or without a network: nodelet images import ARCHIVE",
		"it is not on this machine: the first pod pulls it, or fails where there is no network")
}
