package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/convert"
)

// holder is who has the lock of a root directory.
type holder struct {
	result Result
	pid    int // zero when there is none
}

// lock looks whether an agent uses the root directory. That is a warning: it is
// what should be on a machine that is set up. The kernel's list of locks is
// read, since taking the lock for a moment could fail an agent that starts.
func lock(m Machine, dir string) holder {
	const name = "root directory"
	path := filepath.Join(dir, "lock")
	info, err := os.Stat(m.path(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return holder{result: ok(name, "%s, not used by an agent yet", dir)}
	case errors.Is(err, fs.ErrPermission):
		return holder{result: warn(name, "run it with sudo", "cannot look into %s: permission denied", dir)}
	case err != nil:
		return holder{result: fail(name, "give another one with --root-dir, or make it a directory", "cannot use %s: %v", dir, cause(err))}
	}
	pid, held := lockHolder(m, info, path)
	if !held {
		return holder{result: ok(name, "%s, in use by no agent", dir)}
	}
	who := "pid " + strconv.Itoa(pid)
	if pid == 0 {
		who = "in another container"
	}
	return holder{
		pid:    pid,
		result: warn(name, "nothing, if that is the nodelet of this machine; else end it, or give another directory with --root-dir", "another instance (%s) holds %s", who, path),
	}
}

// lockHolder finds who has locked a file. Some file systems show another device
// in the list than the one of the file; then the process ID in the file has to
// be the same.
func lockHolder(m Machine, info fs.FileInfo, path string) (pid int, held bool) {
	st, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, false
	}
	device := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	inode := fmt.Sprintf(":%d", st.Ino)
	for line := range strings.Lines(m.text("/proc/locks")) {
		// 1: FLOCK ADVISORY WRITE 4711 fe:00:131 0 EOF; one that waits has an arrow.
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		if f[5] == device || f[4] == m.text(path) {
			pid, err := strconv.Atoi(f[4])
			return max(pid, 0), err == nil
		}
	}
	return 0, false
}

// others looks for agents that would quarrel about the same runtime: a kubelet
// ends pods that it does not know, and another nodelet takes pods with nodelet's
// label for its own. Those of other runtimes are left alone. What the
// configuration file of such an agent says is not read, so an endpoint that is
// not among its arguments is unknown.
func others(m Machine, endpoint string, holder int, sandboxes []*runtimeapi.PodSandbox) Result {
	const name = "other agents"
	foreign := foreignPods(sandboxes)
	stop := "stop it: systemctl disable --now kubelet"
	var unsure []string
	for _, p := range m.processes("kubelet") {
		switch at := flag(p.args, "--container-runtime-endpoint"); {
		case at == "" && len(foreign) == 0:
			unsure = append(unsure, fmt.Sprintf("kubelet (pid %d)", p.pid))
		case at == "" || socketPath(at) == socketPath(endpoint):
			return fail(name, stop, "a kubelet (pid %d) uses the same runtime: it ends pods that are not its own", p.pid)
		}
	}
	for _, p := range m.processes("nodelet") {
		if p.pid == m.PID || p.pid == holder || !slices.Contains(p.args, "run") {
			continue
		}
		switch at := flag(p.args, "--runtime-endpoint"); {
		case at == "":
			unsure = append(unsure, fmt.Sprintf("nodelet (pid %d)", p.pid))
		case socketPath(at) == socketPath(endpoint):
			return fail(name, "end one of them, or give it a runtime of its own with --runtime-endpoint",
				"another nodelet (pid %d) uses the same runtime with another root directory: each takes the pods of the other for its own", p.pid)
		}
	}
	switch {
	case len(unsure) > 0:
		return warn(name, "make sure that it uses another runtime, or stop it", "%s may use the same runtime", strings.Join(unsure, " and "))
	case len(foreign) > 0:
		return warn(name, "nothing, if they are wanted; else find out whose they are: crictl pods",
			"the runtime has pods of another agent (%s): nodelet leaves them alone", some(foreign))
	}
	return ok(name, "none on this runtime")
}

// some names the first of many.
func some(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// foreignPods returns the pods of sandboxes that a kubelet or the like has made.
func foreignPods(sandboxes []*runtimeapi.PodSandbox) []string {
	var list []string
	for _, s := range sandboxes {
		if _, ours := convert.Owned(s.GetLabels()); ours || s.GetLabels()[convert.LabelPodUID] == "" {
			continue
		}
		list = append(list, s.GetMetadata().GetNamespace()+"/"+s.GetMetadata().GetName())
	}
	slices.Sort(list)
	return list
}
