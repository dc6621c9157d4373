package preflight

import (
	"context"
	_ "embed" // the recorded files
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/node"
	"nodelet.dev/nodelet/runtime/convert"
)

// files are a recorded machine: what its files hold, by path. A path that ends
// with a slash is a directory, and one in a directory of plug-ins a program.
type files map[string]string

// The cgroups of machines, as their mountinfo shows them.
var (
	//go:embed testdata/mountinfo-v2
	mountsV2 string
	//go:embed testdata/mountinfo-v1
	mountsV1 string
	//go:embed testdata/mountinfo-hybrid
	mountsHybrid string
	//go:embed testdata/mountinfo-none
	mountsNone string
)

const controllersV1 = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t6\t1\nmemory\t4\t679\t1\npids\t8\t6\t1\nnet_cls\t0\t6\t1\n"

// well is a machine of today where nothing is wrong.
func well() files {
	return files{
		"/proc/self/mountinfo":               mountsV2,
		"/sys/fs/cgroup/cgroup.controllers":  "cpuset cpu io memory hugetlb pids rdma misc\n",
		"/proc/sys/net/ipv4/ip_forward":      "1\n",
		"/proc/1/comm":                       "systemd\n",
		"/run/systemd/system/":               "",
		"/proc/locks":                        "1: POSIX  ADVISORY  WRITE 812 fe:00:131 0 EOF\n",
		"/proc/700/comm":                     "containerd\n",
		"/proc/700/cmdline":                  "/usr/bin/containerd\x00",
		"/etc/cni/net.d/10-bridge.conflist":  `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap"}]}`,
		"/opt/cni/bin/loopback":              "program",
		"/opt/cni/bin/bridge":                "program",
		"/opt/cni/bin/host-local":            "program",
		"/opt/cni/bin/portmap":               "program",
		"/run/containerd/containerd.sock":    "socket",
		"/var/lib/nodelet/":                  "",
		"/etc/cni/net.d/README.not-a-config": "{",
	}
}

// with returns the machine with some files changed; an empty value removes one.
func (f files) with(changes files) files {
	for path, text := range changes {
		if delete(f, path); text != "" {
			f[path] = text
		}
	}
	return f
}

// machine writes the files down.
func (f files) machine(t *testing.T) Machine {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "pf") //nolint:usetesting // t.TempDir is too long for a unix socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	for path, text := range f {
		at := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		switch {
		case strings.HasSuffix(path, "/"):
			require.NoError(t, os.MkdirAll(at, 0o755))
		case text == "socket":
			l, err := net.Listen("unix", at)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
		case text == "program":
			require.NoError(t, os.WriteFile(at, nil, 0o755)) //nolint:gosec // it is a program
		default:
			require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		}
	}
	return Machine{
		Root: root, PID: 4000, Kernel: "6.1.0-18-amd64", Now: time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC),
		Synchronised: func() (bool, error) { return true, nil },
		FileSystem: func(string) (node.FileSystem, error) {
			return node.FileSystem{Mount: "/", Total: 100 << 30, Free: 60 << 30, Inodes: 1000, InodesFree: 900}, nil
		},
		Dial:    func(context.Context, string) (int, error) { return 700, nil },
		Runtime: func(string, string) (Runtime, error) { return newRuntime(), nil },
	}
}

// fakeRuntime answers as it is told to.
type fakeRuntime struct {
	version    *runtimeapi.VersionResponse
	conditions []*runtimeapi.RuntimeCondition
	info       map[string]string
	driver     *runtimeapi.CgroupDriver // nil when it does not tell
	images     []*runtimeapi.Image
	sandboxes  []*runtimeapi.PodSandbox
	fails      map[string]error
	hangs      map[string]bool
}

const infoV2 = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}},` +
	`"cni":{"binDirs":["/opt/cni/bin"],"confDir":"/etc/cni/net.d"},"containerdRootDir":"/var/lib/containerd"}`

const infoV1 = `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}},` +
	`"cni":{"binDir":"/opt/cni/bin","confDir":"/etc/cni/net.d"},"sandboxImage":"registry.k8s.io/pause:3.8","containerdRootDir":"/var/lib/containerd"}`

// newRuntime is a containerd of today with which nothing is wrong.
func newRuntime() *fakeRuntime {
	driver := runtimeapi.CgroupDriver_SYSTEMD
	return &fakeRuntime{
		version:    &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.4.2", RuntimeApiVersion: "v1"},
		conditions: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}},
		info:       map[string]string{"config": infoV2, "lastCNILoadStatus": "OK"}, driver: &driver,
		images: []*runtimeapi.Image{{RepoTags: []string{"web:1"}}, {RepoTags: []string{"registry.k8s.io/pause:3.10"}, Pinned: true}},
	}
}

// old makes it containerd 1.6, which tells other things about itself.
func (f *fakeRuntime) old() *fakeRuntime {
	f.version.RuntimeVersion, f.driver = "1.6.20~ds1", nil
	f.info["config"] = infoV1
	f.images[1].Pinned = false
	f.images[1].RepoTags[0] = "registry.k8s.io/pause:3.8"
	return f
}

func (f *fakeRuntime) call(ctx context.Context, op string) error {
	if f.hangs[op] {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return f.fails[op]
}

func (f *fakeRuntime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return f.version, f.call(ctx, "Version")
}

func (f *fakeRuntime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: f.conditions}, Info: f.info}, f.call(ctx, "Status")
}

func (f *fakeRuntime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	if f.driver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method RuntimeConfig for service runtime.v1.RuntimeService")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: *f.driver}}, f.call(ctx, "RuntimeConfig")
}

func (f *fakeRuntime) Sandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	return f.sandboxes, f.call(ctx, "Sandboxes")
}

func (f *fakeRuntime) Images(ctx context.Context) ([]*runtimeapi.Image, error) {
	return f.images, f.call(ctx, "Images")
}

func (f *fakeRuntime) ImageStatus(ctx context.Context, name string) (*runtimeapi.Image, error) {
	for _, i := range f.images {
		if i.GetRepoTags()[0] == name {
			return i, f.call(ctx, "ImageStatus")
		}
	}
	return nil, f.call(ctx, "ImageStatus")
}

func (f *fakeRuntime) Close() error { return nil }

// settings are those of an agent that was told nothing.
func settings() *Settings {
	return &Settings{RootDirectory: "/var/lib/nodelet", PodLogsDir: "/var/log/pods", RuntimeEndpoint: "unix:///run/containerd/containerd.sock"}
}

// lines writes results as the tests compare them.
func lines(results ...Result) []string {
	var list []string
	for _, r := range results {
		text := fmt.Sprintf("%s %s: %s", r.Status, r.Name, r.Message)
		if r.Fix != "" {
			text += " | " + r.Fix
		}
		list = append(list, text)
	}
	return list
}

// problems leaves out what is well.
func problems(results []Result) []string {
	var list []string
	for _, r := range results {
		if r.Status != OK {
			list = append(list, lines(r)...)
		}
	}
	return list
}

// sandbox is one of a pod, of nodelet or of another agent.
func sandbox(namespace, name string, ours bool) *runtimeapi.PodSandbox {
	labels := map[string]string{convert.LabelPodUID: "uid-" + name}
	if ours {
		labels = convert.PodSelector("uid-" + name)
	}
	return &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: namespace, Name: name}, Labels: labels}
}

// locked makes a process hold the lock of the root directory.
func locked(t *testing.T, m Machine, pid string, sameDevice bool) {
	t.Helper()
	path := m.path("/var/lib/nodelet/lock")
	require.NoError(t, os.WriteFile(path, []byte(pid+"\n"), 0o600))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	device := st.Dev
	if !sameDevice {
		device++
	}
	line := fmt.Sprintf("1: FLOCK  ADVISORY  WRITE %s %02x:%02x:%d 0 EOF\n", pid, unix.Major(device), unix.Minor(device), st.Ino)
	require.NoError(t, os.WriteFile(m.path("/proc/locks"), []byte(line), 0o600))
}

var errTest = errors.New("it broke")
