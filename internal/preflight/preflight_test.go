package preflight

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/node"
)

// TestWell: a machine on which nothing is wrong, with the newest and with an old
// containerd.
func TestWell(t *testing.T) {
	m := well().machine(t)
	require.Equal(t, []string{
		"ok root: running as uid 0",
		"ok kernel: 6.1.0-18-amd64",
		"ok clock: 2026-06-01 12:00:00 UTC, synchronised",
		"ok cgroup: version 2 with cpu, memory, pids",
		"ok forwarding: net.ipv4.ip_forward is 1",
		"ok root directory: /var/lib/nodelet, not used by an agent yet",
		"ok runtime socket: /run/containerd/containerd.sock",
		"ok runtime: containerd 2.4.2, CRI v1",
		"ok runtime status: ready",
		"ok cgroup driver: containerd uses systemd (SystemdCgroup = true in /etc/containerd/config.toml), and the init of this machine is systemd",
		"ok sandbox image: registry.k8s.io/pause:3.10",
		"ok cni config: network pods from /etc/cni/net.d/10-bridge.conflist",
		"ok cni plugins: bridge, host-local, loopback, portmap in /opt/cni/bin",
		"ok network: ready",
		"ok events: from CRI",
		"ok disk: 60.0 GiB of 100.0 GiB free on / for /var/lib/nodelet, /var/log/pods, /var/lib/containerd",
		"ok other agents: none on this runtime",
	}, lines(Run(t.Context(), Options{Machine: m, Settings: settings()})...))

	m.Runtime = func(string, string) (Runtime, error) { return newRuntime().old(), nil }
	results := lines(Run(t.Context(), Options{Machine: m, Settings: settings()})...)
	require.Contains(t, results, "ok sandbox image: registry.k8s.io/pause:3.8")
	require.Contains(t, results, "ok events: from containerd, whose CRI has none before 1.7")
	require.Contains(t, results, "ok cgroup driver: containerd uses systemd (SystemdCgroup = true in /etc/containerd/config.toml), and the init of this machine is systemd")

	require.Len(t, Run(t.Context(), Options{Machine: m}), 5, "without a configuration only the machine is looked at")
}

// TestMachines: what is wrong with machines, by their files.
func TestMachines(t *testing.T) {
	const correct = "correct the file; the runtime takes the first one, by name, and no other"
	conflist := "/etc/cni/net.d/10-bridge.conflist"
	for name, c := range map[string]struct {
		changes files
		want    []string
	}{
		"cgroup v1 under systemd": {
			files{"/proc/self/mountinfo": mountsV1, "/proc/cgroups": controllersV1},
			[]string{"warn cgroup: version 1; it works, but runtimes give it up: containerd no later than May 2029 | boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"},
		},
		"cgroup v1, hybrid": {
			files{"/proc/self/mountinfo": mountsHybrid, "/proc/cgroups": controllersV1},
			[]string{"warn cgroup: version 1, hybrid with 2; it works, but runtimes give it up: containerd no later than May 2029 | boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line"},
		},
		"cgroup v1 without memory": {
			files{"/proc/self/mountinfo": mountsV1, "/proc/cgroups": strings.ReplaceAll(controllersV1, "679\t1", "679\t0")},
			[]string{"fail cgroup: version 1 lacks memory, so limits of pods cannot hold | boot with cgroup_enable=memory on the kernel's command line"},
		},
		"cgroup v2 without memory": {
			files{"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io\n"},
			[]string{"fail cgroup: version 2 lacks memory, pids, so limits of pods cannot hold | boot with cgroup_enable=memory on the kernel's command line (on a Raspberry Pi: in /boot/firmware/cmdline.txt)"},
		},
		"no cgroups": {
			files{"/proc/self/mountinfo": mountsNone},
			[]string{"fail cgroup: no cgroup file system is mounted on /sys/fs/cgroup | mount cgroup2 on /sys/fs/cgroup, as systemd does at boot"},
		},
		"systemd driver without systemd": {
			files{"/run/systemd/system/": "", "/proc/1/comm": "runit\n"},
			[]string{"fail cgroup driver: containerd uses systemd (SystemdCgroup = true in /etc/containerd/config.toml), but the init of this machine is runit (/proc/1/comm): no container can start | " +
				`set SystemdCgroup = false in /etc/containerd/config.toml under [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options], then: systemctl restart containerd`},
		},
		"no forwarding": {
			files{"/proc/sys/net/ipv4/ip_forward": "0\n"},
			[]string{"fail forwarding: net.ipv4.ip_forward is 0: pods reach nothing outside of this machine | sysctl -w net.ipv4.ip_forward=1, and the same setting in /etc/sysctl.d/99-nodelet.conf to keep it"},
		},
		"forwarding unknown": {
			files{"/proc/sys/net/ipv4/ip_forward": ""},
			[]string{"warn forwarding: cannot read /proc/sys/net/ipv4/ip_forward | see that IPv4 forwarding is on: sysctl net.ipv4.ip_forward"},
		},
		"no CNI config": {
			files{conflist: ""},
			[]string{"fail cni config: no network configuration in /etc/cni/net.d | write one: /etc/cni/net.d/10-bridge.conflist with the plugins bridge and portmap, or install a network add-on"},
		},
		"no CNI directory": {
			files{conflist: "", "/etc/cni/net.d/README.not-a-config": ""},
			[]string{"fail cni config: no network configuration in /etc/cni/net.d | write one: /etc/cni/net.d/10-bridge.conflist with the plugins bridge and portmap, or install a network add-on"},
		},
		"broken conflist": {
			files{conflist: "{\n  \"name\": \"pods\",\n  \"plugins\": [}\n"},
			[]string{"fail cni config: cannot use /etc/cni/net.d/10-bridge.conflist:3:15: invalid character '}' looking for beginning of value | " + correct},
		},
		"broken json, before a good one": {
			files{"/etc/cni/net.d/00-first.json": "not json"},
			[]string{"fail cni config: cannot use /etc/cni/net.d/00-first.json:1:2: invalid character 'o' in literal null (expecting 'u') | " + correct},
		},
		"conf of the wrong kind": {
			files{"/etc/cni/net.d/00-first.conf": `{"name": "n", "plugins": [{"type": "bridge"}]}`},
			[]string{"fail cni config: cannot use /etc/cni/net.d/00-first.conf: it names no plugin as its type | " + correct},
		},
		"conflist without plugins": {
			files{conflist: `{"name": "n", "type": "bridge"}`},
			[]string{"fail cni config: cannot use /etc/cni/net.d/10-bridge.conflist: it has no plugins | " + correct},
		},
		"a plugin is missing": {
			files{"/opt/cni/bin/portmap": "", "/opt/cni/bin/loopback": "a file"},
			[]string{"fail cni plugins: loopback, portmap not found in /opt/cni/bin | install the package containernetworking-plugins, and name its directory as bin_dir of CNI in /etc/containerd/config.toml"},
		},
		"plugins in another directory": {
			files{
				"/opt/cni/bin/portmap": "", "/usr/lib/cni/portmap": "program", "/usr/lib/cni/bridge": "program",
				"/usr/lib/cni/loopback": "program", "/usr/lib/cni/host-local": "program",
			},
			[]string{"fail cni plugins: portmap not found in /opt/cni/bin | they are in /usr/lib/cni: name it as bin_dir of CNI in /etc/containerd/config.toml, then: systemctl restart containerd"},
		},
		"a kubelet on the same runtime": {
			files{"/proc/900/comm": "kubelet\n", "/proc/900/cmdline": "/usr/bin/kubelet\x00--container-runtime-endpoint=unix:///run/containerd/containerd.sock\x00"},
			[]string{"fail other agents: a kubelet (pid 900) uses the same runtime: it ends pods that are not its own | stop it: systemctl disable --now kubelet"},
		},
		"a kubelet on another runtime": {
			files{"/proc/900/comm": "kubelet\n", "/proc/900/cmdline": "/usr/bin/kubelet\x00--container-runtime-endpoint\x00unix:///run/crio/crio.sock\x00"}, nil,
		},
		"a kubelet on some runtime": {
			files{"/proc/900/comm": "kubelet\n", "/proc/900/cmdline": "/usr/bin/kubelet\x00"},
			[]string{"warn other agents: kubelet (pid 900) may use the same runtime | make sure that it uses another runtime, or stop it"},
		},
		"another nodelet on the same runtime": {
			files{"/proc/900/comm": "nodelet\n", "/proc/900/cmdline": "nodelet\x00run\x00--root-dir\x00/x\x00--runtime-endpoint\x00/run/containerd/containerd.sock\x00"},
			[]string{"fail other agents: another nodelet (pid 900) uses the same runtime with another root directory: each takes the pods of the other for its own | end one of them, or give it a runtime of its own with --runtime-endpoint"},
		},
		"another nodelet on some runtime, and commands": {
			files{
				"/proc/900/comm": "nodelet\n", "/proc/900/cmdline": "nodelet\x00run\x00", "/proc/901/comm": "nodelet\n", "/proc/901/cmdline": "nodelet\x00status\x00",
				"/proc/4000/comm": "nodelet\n", "/proc/4000/cmdline": "nodelet\x00check\x00",
			},
			[]string{"warn other agents: nodelet (pid 900) may use the same runtime | make sure that it uses another runtime, or stop it"},
		},
		"the root directory is a file": {
			files{"/var/lib/nodelet/": "", "/var/lib/nodelet": "a file"},
			[]string{"fail root directory: cannot use /var/lib/nodelet: not a directory | give another one with --root-dir, or make it a directory"},
		},
		"no socket": {
			files{"/run/containerd/containerd.sock": ""},
			[]string{"fail runtime socket: no socket at /run/containerd/containerd.sock | start the runtime: systemctl start containerd; or name its socket with --runtime-endpoint"},
		},
		"a file for a socket": {
			files{"/run/containerd/containerd.sock": "a file"},
			[]string{"fail runtime socket: /run/containerd/containerd.sock is not a socket | name the runtime's socket with --runtime-endpoint"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := well().with(c.changes).machine(t)
			require.Equal(t, c.want, problems(Run(t.Context(), Options{Machine: m, Settings: settings()})))
		})
	}
}

// TestSystem: what is wrong with machines, by what their kernels say.
func TestSystem(t *testing.T) {
	const disks = "make room on / and /data: remove what nobody needs (nodelet images ls, journalctl --vacuum-size=100M), or enlarge it"
	for name, c := range map[string]struct {
		change func(*Machine)
		want   []string
	}{
		"not root": {
			func(m *Machine) { m.UID = 1000 },
			[]string{"fail root: running as uid 1000: nodelet run needs root, and some checks see less without | run it with sudo"},
		},
		"old kernel": {
			func(m *Machine) { m.Kernel = "4.19.0-26-amd64" },
			[]string{"warn kernel: 4.19.0-26-amd64 has no pidfd_open: nodelet cannot kill a container that the runtime fails to stop | boot a kernel of 5.3 or newer"},
		},
		"strange kernel": {
			func(m *Machine) { m.Kernel = "gVisor" },
			[]string{`warn kernel: "gVisor" is no release that can be understood | see that it is 5.3 or newer: uname -r`},
		},
		"a clock that was never set": {
			func(m *Machine) { m.Now = time.Unix(5, 0) },
			[]string{"fail clock: it says 1970-01-01 00:00:05 UTC and was never set | set the clock: timedatectl set-ntp true, or date -s; certificates of registries are not valid before they were made"},
		},
		"a clock that nothing keeps right": {
			func(m *Machine) { m.Synchronised = func() (bool, error) { return false, nil } },
			[]string{"warn clock: 2026-06-01 12:00:00 UTC, and the kernel knows of nothing that keeps it right | let something keep it right: timedatectl set-ntp true, or install chrony"},
		},
		"a clock that does not tell": {
			func(m *Machine) { m.Synchronised = func() (bool, error) { return false, errTest } },
			[]string{"warn clock: 2026-06-01 12:00:00 UTC; it broke | see whether it is right: date -u"},
		},
		"disks nearly full": {
			func(m *Machine) {
				m.FileSystem = func(path string) (node.FileSystem, error) {
					if strings.HasPrefix(path, "/var/lib") {
						return node.FileSystem{Mount: "/", Total: 10 << 30, Free: 50 << 20}, nil
					}
					return node.FileSystem{Mount: "/data", Total: 10 << 30, Free: 1 << 29}, nil
				}
			},
			[]string{"fail disk: 50.0 MiB of 10.0 GiB free on / for /var/lib/nodelet, /var/lib/containerd; 512.0 MiB of 10.0 GiB free on /data for /var/log/pods | " + disks},
		},
		"inodes nearly used up": {
			func(m *Machine) {
				m.FileSystem = func(string) (node.FileSystem, error) {
					return node.FileSystem{Mount: "/", Total: 10 << 30, Free: 5 << 30, Inodes: 1000, InodesFree: 20}, nil
				}
			},
			[]string{"warn disk: 5.0 GiB of 10.0 GiB free, and 20 of 1000 inodes on / for /var/lib/nodelet, /var/log/pods, /var/lib/containerd | " +
				"make room on /: remove what nobody needs (nodelet images ls, journalctl --vacuum-size=100M), or enlarge it"},
		},
		"a disk that does not answer": {
			func(m *Machine) {
				m.FileSystem = func(string) (node.FileSystem, error) { return node.FileSystem{}, errTest }
			},
			[]string{"fail disk: it broke | make sure that its file system is mounted and answers"},
		},
		"a socket of others": {
			func(m *Machine) {
				m.Dial = func(context.Context, string) (int, error) { return 0, &fs.PathError{Op: "dial", Err: syscall.EACCES} }
			},
			[]string{"fail runtime socket: cannot open /run/containerd/containerd.sock: permission denied | run it with sudo"},
		},
		"a socket of the dead": {
			func(m *Machine) {
				m.Dial = func(context.Context, string) (int, error) {
					return 0, &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}
				}
			},
			[]string{"fail runtime socket: nobody answers at /run/containerd/containerd.sock | start the runtime: systemctl start containerd; its last words: journalctl -u containerd -n 20"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := well().machine(t)
			c.change(&m)
			require.Equal(t, c.want, problems(Run(t.Context(), Options{Machine: m, Settings: settings()})))
		})
	}
}

// TestRuntimes: what is wrong with runtimes.
func TestRuntimes(t *testing.T) {
	const log = "look at its log: journalctl -u containerd"
	cgroupfs := runtimeapi.CgroupDriver_CGROUPFS
	for name, c := range map[string]struct {
		change func(*fakeRuntime)
		want   []string
	}{
		"no CRI": {
			func(f *fakeRuntime) {
				f.fails = map[string]error{"Version": status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")}
			},
			[]string{"fail runtime: containerd answers but has no CRI service | remove cri from disabled_plugins in /etc/containerd/config.toml, then: systemctl restart containerd; where it is not there, journalctl -u containerd says why"},
		},
		"an error": {
			func(f *fakeRuntime) { f.fails = map[string]error{"Version": status.Error(codes.Internal, "no")} },
			[]string{"fail runtime: cannot get its version: no | look at its log, and start it again: journalctl -u containerd; systemctl restart containerd"},
		},
		"CRI of the past": {
			func(f *fakeRuntime) { f.version.RuntimeApiVersion, f.version.RuntimeVersion = "v1alpha2", "1.5.1" },
			[]string{"fail runtime: containerd 1.5.1, CRI v1alpha2: nodelet needs CRI v1 | install containerd 1.6 or newer, or another runtime with CRI v1"},
		},
		"a release at its end": {
			func(f *fakeRuntime) { f.version.RuntimeVersion = "v1.5.18" },
			[]string{"warn runtime: containerd v1.5.18, CRI v1; containerd 1.5 has had no fixes from its authors since February 2023 | let the distribution give security fixes, or install a newer containerd"},
		},
		"not ready": {
			func(f *fakeRuntime) {
				f.conditions[0] = &runtimeapi.RuntimeCondition{Type: "RuntimeReady", Reason: "Starting"}
				f.conditions[1] = &runtimeapi.RuntimeCondition{Type: "NetworkReady", Message: "Network plugin returns error: cni plugin not initialized"}
				f.info["lastCNILoadStatus"] = "cni config load failed: failed to load CNI config file"
			},
			[]string{
				"fail runtime status: containerd says that it is not ready: Starting | " + log,
				"fail network: containerd says that the network is not ready: cni config load failed: failed to load CNI config file | look at its log, and start it again: journalctl -u containerd; systemctl restart containerd",
			},
		},
		"no status": {
			func(f *fakeRuntime) { f.fails = map[string]error{"Status": status.Error(codes.Internal, "no")} },
			[]string{"fail runtime status: cannot get the status: no | " + log},
		},
		"no sandboxes": {
			func(f *fakeRuntime) { f.fails = map[string]error{"Sandboxes": status.Error(codes.Internal, "no")} },
			[]string{"fail sandboxes: cannot list the sandboxes: no | " + log},
		},
		"cgroupfs beside systemd": {
			func(f *fakeRuntime) { f.driver = &cgroupfs },
			[]string{"fail cgroup driver: containerd uses cgroupfs (SystemdCgroup = false in /etc/containerd/config.toml), but systemd manages the cgroups of this machine (/run/systemd/system): limits can get lost | " +
				`set SystemdCgroup = true in /etc/containerd/config.toml under [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options], then: systemctl restart containerd`},
		},
		"cgroupfs beside systemd, as containerd 1.6 tells": {
			func(f *fakeRuntime) {
				f.old().info["config"] = strings.ReplaceAll(infoV1, "true", "false")
			},
			[]string{"fail cgroup driver: containerd uses cgroupfs (SystemdCgroup = false in /etc/containerd/config.toml), but systemd manages the cgroups of this machine (/run/systemd/system): limits can get lost | " +
				`set SystemdCgroup = true in /etc/containerd/config.toml under [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options], then: systemctl restart containerd`},
		},
		"cgroupfs beside systemd, in CRI-O": {
			func(f *fakeRuntime) {
				f.version.RuntimeName, f.version.RuntimeVersion, f.driver = "cri-o", "1.34.0", &cgroupfs
			},
			[]string{`fail cgroup driver: cri-o uses cgroupfs (cgroup_manager = "cgroupfs" in /etc/crio/crio.conf), but systemd manages the cgroups of this machine (/run/systemd/system): limits can get lost | ` +
				`set cgroup_manager = "systemd" in /etc/crio/crio.conf and restart it: systemctl restart crio`},
		},
		"a driver that nobody tells": {
			func(f *fakeRuntime) { f.driver, f.info["config"] = nil, "{}" },
			[]string{"warn cgroup driver: containerd does not tell which one it uses | see that it is systemd where systemd is the init"},
		},
		"no driver": {
			func(f *fakeRuntime) { f.fails = map[string]error{"RuntimeConfig": status.Error(codes.Internal, "no")} },
			[]string{"fail cgroup driver: cannot get it from containerd: no | " + log},
		},
		"no sandbox image": {
			func(f *fakeRuntime) { f.images = f.images[:1] },
			[]string{"warn sandbox image: it is not on this machine: the first pod pulls it, or fails where there is no network | " +
				"pull the one that containerd config dump names as sandbox: ctr -n k8s.io images pull IMAGE; or without a network: nodelet images import ARCHIVE"},
		},
		"no sandbox image, as containerd 1.6 tells": {
			func(f *fakeRuntime) { f.old().images = f.images[:1] },
			[]string{"warn sandbox image: registry.k8s.io/pause:3.8 is not on this machine: the first pod pulls it, or fails where there is no network | " +
				"pull it: ctr -n k8s.io images pull registry.k8s.io/pause:3.8; or without a network: nodelet images import ARCHIVE"},
		},
		"images fail": {
			func(f *fakeRuntime) { f.fails = map[string]error{"Images": status.Error(codes.Internal, "no")} },
			[]string{"fail sandbox image: cannot list the images: no | look at the runtime's log: journalctl -u containerd"},
		},
		"an image fails": {
			func(f *fakeRuntime) {
				f.old().fails = map[string]error{"ImageStatus": status.Error(codes.Internal, "no")}
			},
			[]string{"fail sandbox image: cannot look up registry.k8s.io/pause:3.8: no | look at the runtime's log: journalctl -u containerd"},
		},
		"pods of another agent": {
			func(f *fakeRuntime) {
				f.sandboxes = []*runtimeapi.PodSandbox{sandbox("shop", "web", true), sandbox("kube-system", "proxy", false), {Labels: map[string]string{"made": "by crictl"}}}
			},
			[]string{"warn other agents: the runtime has pods of another agent (kube-system/proxy): nodelet leaves them alone | nothing, if they are wanted; else find out whose they are: crictl pods"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := well().machine(t)
			f := newRuntime()
			c.change(f)
			m.Runtime = func(string, string) (Runtime, error) { return f, nil }
			got := problems(Run(t.Context(), Options{Machine: m, Settings: settings()}))
			if len(got) > 0 && strings.HasPrefix(got[0], "warn runtime: containerd 1.6.20") {
				got = got[1:]
			}
			require.Equal(t, c.want, got)
		})
	}
	require.Equal(t, []string{"fail runtime socket: cannot use tcp://127.0.0.1:1: only unix sockets are supported | name it as unix:///run/containerd/containerd.sock"},
		problems(Run(t.Context(), Options{Machine: well().machine(t), Settings: &Settings{RuntimeEndpoint: "tcp://127.0.0.1:1", RootDirectory: "/var/lib/nodelet"}})))
}

func TestSome(t *testing.T) {
	require.Equal(t, "a, b, c", some([]string{"a", "b", "c"}))
	require.Equal(t, "a, b, c and 2 more", some([]string{"a", "b", "c", "d", "e"}))
}

// TestForeignPodsOfKubelet: a kubelet whose endpoint is not known is a failure
// when somebody else's pods are in the runtime.
func TestForeignPodsOfKubelet(t *testing.T) {
	m := well().with(files{"/proc/900/comm": "kubelet\n", "/proc/900/cmdline": "kubelet\x00"}).machine(t)
	f := newRuntime()
	f.sandboxes = []*runtimeapi.PodSandbox{sandbox("kube-system", "proxy", false)}
	m.Runtime = func(string, string) (Runtime, error) { return f, nil }
	require.Equal(t, []string{"fail other agents: a kubelet (pid 900) uses the same runtime: it ends pods that are not its own | stop it: systemctl disable --now kubelet"},
		problems(Run(t.Context(), Options{Machine: m, Settings: settings()})))
}

// TestHangingRuntime: a runtime that accepts calls and never answers costs the
// time of one question where nothing else can be asked.
func TestHangingRuntime(t *testing.T) {
	for _, c := range []struct {
		op   string
		took time.Duration
		want string
	}{
		{"Version", callTimeout, "fail runtime: cannot get its version: no answer within 5s | look at its log, and start it again: journalctl -u containerd; systemctl restart containerd"},
		{"Status", callTimeout, "fail runtime status: cannot get the status: no answer within 5s | look at its log: journalctl -u containerd"},
		{"RuntimeConfig", callTimeout, "fail cgroup driver: cannot get it from containerd: no answer within 5s | look at its log: journalctl -u containerd"},
		{"Images", callTimeout, "fail sandbox image: cannot list the images: no answer within 5s | look at the runtime's log: journalctl -u containerd"},
	} {
		t.Run(c.op, func(t *testing.T) {
			m := well().machine(t)
			f := newRuntime()
			f.hangs = map[string]bool{c.op: true}
			m.Runtime = func(string, string) (Runtime, error) { return f, nil }
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				require.Equal(t, []string{c.want}, problems(Run(t.Context(), Options{Machine: m, Settings: settings()})))
				require.Equal(t, c.took, time.Since(began))
			})
		})
	}
}

// TestLock: who holds the root directory is known from the kernel's list, also
// where that shows another device; a lock of another file is none.
func TestLock(t *testing.T) {
	const held = "warn root directory: another instance (pid 812) holds /var/lib/nodelet/lock | nothing, if that is the nodelet of this machine; else end it, or give another directory with --root-dir"
	running := files{"/proc/812/comm": "nodelet\n", "/proc/812/cmdline": "nodelet\x00run\x00"}
	for _, sameDevice := range []bool{true, false} {
		m := well().with(running).machine(t)
		locked(t, m, "812", sameDevice)
		require.Equal(t, []string{held}, problems(Run(t.Context(), Options{Machine: m, Settings: settings()})), "the holder is no other agent")
	}
	m := well().machine(t)
	locked(t, m, "0", true)
	require.Equal(t, "another instance (in another container) holds /var/lib/nodelet/lock", lock(m, "/var/lib/nodelet").result.Message)
	require.NoError(t, os.WriteFile(m.path("/proc/locks"), []byte("1: FLOCK  ADVISORY  WRITE 812 fe:00:1 0 EOF\n1: -> FLOCK\n"), 0o600))
	require.Equal(t, "ok root directory: /var/lib/nodelet, in use by no agent", lines(lock(m, "/var/lib/nodelet").result)[0])
}

// TestTwoSockets: the image service may have its own.
func TestTwoSockets(t *testing.T) {
	m := well().machine(t)
	s := settings()
	s.ImageEndpoint = "/run/images.sock"
	require.Equal(t, []string{"fail runtime socket: no socket at /run/images.sock | start the runtime: systemctl start containerd; or name its socket with --runtime-endpoint"},
		problems(Run(t.Context(), Options{Machine: m, Settings: s})))
}

// TestThis: the machine of the test answers.
func TestThis(t *testing.T) {
	m, err := This()
	require.NoError(t, err)
	for _, r := range Run(t.Context(), Options{Machine: m}) {
		require.NotEmpty(t, r.Message, r.Name)
		require.Equal(t, r.Status == OK, r.Fix == "", "whatever is not well has a fix: %s", r.Name)
	}
	_, err = m.Synchronised()
	require.NoError(t, err)
}
