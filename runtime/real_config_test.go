package runtime_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime"
)

// lines waits for a container's end and returns what it wrote.
func (r onRig) lines(t *testing.T, p *corev1.Pod, name string) []string {
	t.Helper()
	o := r.eventually(t, p.UID, exited(name))
	c, _ := o.Latest(name)
	text, err := os.ReadFile(c.LogPath)
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4) // time, stream, tag, text
		require.Len(t, fields, 4)
		out = append(out, fields[3])
	}
	return out
}

// TestRealConfig: the containers see what their pods ask for.
func TestRealConfig(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			t.Run("SEC-1 host namespaces", func(t *testing.T) { hostNamespaces(t, r) })
			t.Run("SEC-2 shared processes", func(t *testing.T) { sharedProcesses(t, r) })
			t.Run("SEC-3 target", func(t *testing.T) { targetProcesses(t, r) })
			t.Run("SEC-5 users", func(t *testing.T) { users(t, r) })
			t.Run("RES limits", func(t *testing.T) { limits(t, r) })
			t.Run("Q-8 host ports", func(t *testing.T) { hostPorts(t, r) })
			t.Run("HN and DNS", func(t *testing.T) { names(t, r) })
		})
	}
}

func hostNamespaces(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("host", shell("main", `for n in net pid ipc mnt; do readlink /proc/self/ns/$n; done; grep CapEff /proc/self/status; echo $IP`))
	p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
	c := &p.Spec.Containers[0]
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	c.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	sandbox, _ := r.start(t, p)
	require.True(t, sandbox.HostNetwork)
	require.Empty(t, sandbox.IPs)
	got := r.lines(t, p, "main")
	for i, name := range []string{"net", "pid", "ipc"} {
		want, err := os.Readlink("/proc/self/ns/" + name)
		require.NoError(t, err)
		require.Equal(t, want, got[i])
	}
	mine, err := os.Readlink("/proc/self/ns/mnt")
	require.NoError(t, err)
	require.NotEqual(t, mine, got[3])
	require.NotContains(t, got[4], "0000000000000000")
	require.Equal(t, "192.0.2.1", got[5], "the node's address")
}

func sharedProcesses(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("shared", shell("server", "sleep 4711"), shell("main", "ps -o args; echo first $(tr '\\0' ' ' </proc/1/cmdline)"))
	p.Spec.ShareProcessNamespace = new(true)
	r.start(t, p)
	text := strings.Join(r.lines(t, p, "main"), "\n")
	require.Contains(t, text, "sleep 4711")
	require.Contains(t, text, "trap") // the sandbox's own process is the first
}

func targetProcesses(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("target", shell("server", "sleep 4712"))
	debug := shell("debug", "ps -o args")
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: debug.Name, Image: p.Spec.Containers[0].Image, Command: debug.Command},
		TargetContainerName:      "server",
	}}
	sandbox, _ := r.start(t, p)
	o, err := r.Inspect(t.Context(), p.UID)
	require.NoError(t, err)
	server, _ := o.Latest("server")
	id, err := r.CreateContainer(t.Context(), runtime.ContainerRequest{Pod: p, Name: "debug", Sandbox: sandbox, ImageRef: server.ImageID})
	require.NoError(t, err)
	require.NoError(t, r.StartContainer(t.Context(), id))
	require.Contains(t, strings.Join(r.lines(t, p, "debug"), "\n"), "sleep 4712")
}

func users(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("users",
		shell("main", `id -u; id -g; id -G; touch /x 2>/dev/null && echo writable || echo readonly; grep -E '^(NoNewPrivs|CapEff|Seccomp):' /proc/self/status | tr -d '\t'`),
		shell("root", "id -u; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'; ls -A /sys/firmware | wc -w"))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(3000)), SupplementalGroups: []int64{4000}}
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000)), RunAsNonRoot: new(true),
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	r.start(t, p)
	got := r.lines(t, p, "main")
	require.Equal(t, []string{"1000", "2000"}, got[:2])
	for _, group := range []string{"2000", "3000", "4000"} {
		require.Contains(t, strings.Fields(got[2]), group)
	}
	require.Equal(t, []string{"readonly", "CapEff:0000000000000000", "NoNewPrivs:1", "Seccomp:2"}, got[3:])
	require.Equal(t, []string{"0", "NoNewPrivs:0", "Seccomp:0", "0"}, r.lines(t, p, "root"))
	// SEC-6: an image that runs as root is refused before anything is made.
	p.Spec.SecurityContext.RunAsNonRoot = new(true)
	o, err := r.Inspect(t.Context(), p.UID)
	require.NoError(t, err)
	root, _ := o.Latest("root")
	_, err = r.CreateContainer(t.Context(), runtime.ContainerRequest{Pod: p, Name: "root", Attempt: 1, Sandbox: o.Sandboxes[0], ImageRef: root.ImageID})
	require.Equal(t, pod.ClassInvalid, pod.ClassOf(err), "%v", err)
	require.Equal(t, "CreateContainerConfigError", pod.ReasonOf(err, ""))
}

func limits(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("limits", shell("main", `cat /proc/self/oom_score_adj
		cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max
		cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max`))
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	r.start(t, p)
	require.Equal(t, []string{"1000", "67108864", "50000"}, r.lines(t, p, "main"))
}

func names(t *testing.T, r onRig) {
	t.Helper()
	p := newPod("names", shell("main", "hostname; cat /etc/resolv.conf"))
	p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "box", "cellar", new(true)
	p.Spec.DNSPolicy = corev1.DNSNone
	p.Spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.53"}, Searches: []string{"one.example", "two.example"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}, {Name: "edns0"}},
	}
	r.start(t, p)
	require.Equal(t, []string{
		"box.cellar.shop.svc", "search one.example two.example", "nameserver 192.0.2.53", "options ndots:3 edns0",
	}, r.lines(t, p, "main"))
}

// hostPorts: a sidecar's port is reached through the node.
func hostPorts(t *testing.T, r onRig) {
	t.Helper()
	var listen net.ListenConfig
	free, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address, ok := free.Addr().(*net.TCPAddr)
	require.True(t, ok)
	require.NoError(t, free.Close())
	server := shell("server", "echo served > /tmp/index.html; httpd -f -p 8080 -h /tmp")
	server.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	server.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: int32(address.Port), HostIP: "127.0.0.1"}}
	p := newPod("ports", shell("main", "sleep 1000"))
	sidecar := newPod("", server).Spec.Containers[0]
	p.Spec.InitContainers = []corev1.Container{sidecar}
	sandbox, _ := r.start(t, p)
	o, err := r.Inspect(t.Context(), p.UID)
	require.NoError(t, err)
	main, _ := o.Latest("main")
	id, err := r.CreateContainer(t.Context(), runtime.ContainerRequest{Pod: p, Name: "server", Sandbox: sandbox, ImageRef: main.ImageID})
	require.NoError(t, err)
	require.NoError(t, r.StartContainer(t.Context(), id))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.String()+"/", nil)
		require.NoError(c, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(c, err)
		defer response.Body.Close() //nolint:errcheck // it was read
		text, err := io.ReadAll(response.Body)
		require.NoError(c, err)
		require.Equal(c, "served\n", string(text))
	}, patience, 20*time.Millisecond)
	o, err = r.Inspect(t.Context(), p.UID)
	require.NoError(t, err)
	got, _ := o.Latest("server")
	require.Equal(t, pod.KindSidecar, got.Kind)
	require.NoError(t, r.StopSandbox(t.Context(), sandbox.ID))
}
