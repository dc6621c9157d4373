package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerdFile is containerd's configuration unless it was started with
// another.
const containerdFile = "/etc/containerd/config.toml"

// found is what was learnt of a runtime.
type found struct {
	results   []Result
	name      string // of the runtime
	version   string
	file      string // its configuration
	config    criConfig
	status    *runtimeapi.StatusResponse
	sandboxes []*runtimeapi.PodSandbox
}

// look makes the checks of the runtime. What is asked first decides whether the
// rest can be asked at all.
func look(ctx context.Context, m Machine, s Settings) found {
	r := found{file: containerdFile}
	runtime, images := socketPath(s.RuntimeEndpoint), socketPath(cmp.Or(s.ImageEndpoint, s.RuntimeEndpoint))
	for _, path := range []string{runtime, images} {
		pid, result := socket(ctx, m, path)
		if path == runtime || result.Status != OK {
			r.results = append(r.results, result)
		}
		if result.Status != OK {
			return r
		}
		if path == runtime {
			r.name, r.file = m.text(fmt.Sprintf("/proc/%d/comm", pid)), cmp.Or(flag(m.command(pid), "--config", "-config", "-c"), containerdFile)
		}
		if images == runtime {
			break
		}
	}
	cri, err := m.Runtime(runtime, images)
	if err != nil {
		r.results = append(r.results, fail("runtime", "look at its log: journalctl -u containerd", "%v", err))
		return r
	}
	if r.identify(ctx, m.Now, cri) && r.ask(ctx, cri) {
		r.results = append(r.results, driver(ctx, m, cri, r), sandboxImage(ctx, cri, r.config))
		r.results = append(r.results, r.network(m)...)
		r.results = append(r.results, r.events())
	}
	if err := cri.Close(); err != nil {
		r.results = append(r.results, warn("runtime", "run the check again", "cannot close the connection: %v", err))
	}
	return r
}

// socketPath returns the path of an endpoint; what is no unix socket comes back
// as it is.
func socketPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// socket looks whether somebody answers at a path, and who.
func socket(ctx context.Context, m Machine, path string) (pid int, r Result) {
	const name = "runtime socket"
	const start = "start the runtime: systemctl start containerd; or name its socket with --runtime-endpoint"
	if !filepath.IsAbs(path) {
		return 0, fail(name, "name it as unix:///run/containerd/containerd.sock", "cannot use %s: only unix sockets are supported", path)
	}
	info, err := os.Stat(m.path(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, fail(name, start, "no socket at %s", path)
	case errors.Is(err, fs.ErrPermission):
		return 0, fail(name, "run it with sudo", "cannot look at %s: permission denied", path)
	case err != nil:
		return 0, fail(name, start, "cannot look at %s: %v", path, cause(err))
	case info.Mode().Type() != fs.ModeSocket:
		return 0, fail(name, "name the runtime's socket with --runtime-endpoint", "%s is not a socket", path)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pid, err = m.Dial(ctx, path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return 0, fail(name, "run it with sudo", "cannot open %s: permission denied", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return 0, fail(name, "start the runtime: systemctl start containerd; its last words: journalctl -u containerd -n 20", "nobody answers at %s", path)
	case err != nil:
		return 0, fail(name, start, "cannot open %s: %s", path, said(err))
	}
	return pid, ok(name, "%s", path)
}

// identify asks who it is, and whether it speaks CRI.
func (r *found) identify(ctx context.Context, now time.Time, cri Runtime) bool {
	const name = "runtime"
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	version, err := cri.Version(ctx)
	switch {
	case unserved(err):
		who := cmp.Or(r.name, "containerd")
		if who != "containerd" {
			r.results = append(r.results, fail(name, "name the socket of a CRI runtime with --runtime-endpoint", "%s answers but has no CRI service", who))
			return false
		}
		r.results = append(r.results, fail(name,
			fmt.Sprintf("remove cri from disabled_plugins in %s, then: systemctl restart containerd; where it is not there, journalctl -u containerd says why", r.file),
			"containerd answers but has no CRI service"))
		return false
	case err != nil:
		r.results = append(r.results, fail(name, "look at its log, and start it again: journalctl -u containerd; systemctl restart containerd", "cannot get its version: %s", said(err)))
		return false
	}
	r.name, r.version = version.GetRuntimeName(), version.GetRuntimeVersion()
	r.results = append(r.results, rateVersion(now, version))
	return version.GetRuntimeApiVersion() == "v1"
}

// ask gets its status, from which much else is known.
func (r *found) ask(ctx context.Context, cri Runtime) bool {
	const name = "runtime status"
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := cri.Status(asking)
	if err != nil {
		r.results = append(r.results, fail(name, "look at its log: journalctl -u containerd", "cannot get the status: %s", said(err)))
		return false
	}
	r.status, r.config = st, parseConfig(st.GetInfo())
	if ready, message := condition(st, runtimeapi.RuntimeReady); !ready {
		r.results = append(r.results, fail(name, "look at its log: journalctl -u containerd", "%s says that it is not ready: %s", r.name, message))
	} else {
		r.results = append(r.results, ok(name, "ready"))
	}
	listing, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if r.sandboxes, err = cri.Sandboxes(listing); err != nil {
		r.results = append(r.results, fail("sandboxes", "look at its log: journalctl -u containerd", "cannot list the sandboxes: %s", said(err)))
	}
	return true
}

// condition returns a condition of the runtime and what it says about it.
func condition(st *runtimeapi.StatusResponse, kind string) (ready bool, message string) {
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c.GetStatus(), cmp.Or(c.GetMessage(), c.GetReason(), "it does not say why")
		}
	}
	return false, "it does not say"
}

// events says where changes of containers become known from. Nobody subscribes
// for that: see Runtime.
func (r *found) events() Result {
	const name = "events"
	major, minor, known := parseVersion(r.version)
	switch {
	case r.name != "containerd" || !known:
		return ok(name, "tried when the agent runs; without them it lists more often")
	case major == 1 && minor < 7:
		return ok(name, "from containerd, whose CRI has none before 1.7")
	}
	return ok(name, "from CRI")
}
