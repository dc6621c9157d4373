package rig

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRealStartDebian(t *testing.T) { startRunStop(t, Debian) }
func TestRealStartV2(t *testing.T)     { startRunStop(t, V2) }

func startRunStop(t *testing.T, flavor Flavor) {
	t.Helper()
	c := ForTest(t, flavor)
	conn, err := c.Dial()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	id := runSandbox(t, conn)

	t.Run("pull from the registry", func(t *testing.T) { pullFromRegistry(t, conn) })

	t.Run("crash and restart keep the sandbox", func(t *testing.T) {
		require.NoError(t, c.Kill9(t.Context()))
		require.NoError(t, c.Restart(t.Context()))
		got, err := runtimeapi.NewRuntimeServiceClient(conn).PodSandboxStatus(t.Context(),
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, runtimeapi.PodSandboxState_SANDBOX_READY, got.GetStatus().GetState())
	})

	t.Run("stop after a crash leaves nothing", func(t *testing.T) {
		require.NoError(t, c.Kill9(t.Context()))
		require.NotEmpty(t, c.shimPids())
		reopened, err := Open(c.Dir())
		require.NoError(t, err)
		require.NoError(t, reopened.Stop(t.Context()))
		require.Empty(t, c.shimPids())
		require.NoDirExists(t, c.Dir())
		_, err = net.InterfaceByName(c.saved.Network.Bridge)
		require.Error(t, err)
		rules, err := natRules(t.Context())
		require.NoError(t, err)
		require.NotContains(t, strings.Join(rules, "\n"), c.saved.Network.Bridge)
		cached, err := filepath.Glob("/var/lib/cni/results/*" + id + "*")
		require.NoError(t, err)
		require.Empty(t, cached)
	})
}

func TestRealSweepStopsWhatADeadTestLeft(t *testing.T) {
	c := ForTest(t, Debian)
	require.NoError(t, Sweep(t.Context(), os.TempDir()))
	require.True(t, c.daemon.running(), "its owner lives")

	// The instance now says that it belongs to a process that is gone.
	c.saved.OwnerPid, c.saved.OwnerTicks = 1<<22-1, 1
	require.NoError(t, c.save())
	require.NoError(t, Sweep(t.Context(), os.TempDir()))
	require.NoDirExists(t, c.Dir())
	require.False(t, c.daemon.running())
}

func runSandbox(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u"},
		LogDirectory: t.TempDir(),
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: freePort(t), HostIp: "127.0.0.1"}},
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
	sandbox, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	require.NoError(t, err)
	container, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Image:    &runtimeapi.ImageSpec{Image: BusyboxImage},
			Command:  []string{"sleep", "1000"}, LogPath: "c.log", Linux: &runtimeapi.LinuxContainerConfig{},
		},
	})
	require.NoError(t, err)
	_, err = client.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: container.GetContainerId()})
	require.NoError(t, err)
	out, err := client.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: container.GetContainerId(), Cmd: []string{"cat", "/etc/version"}, Timeout: 30,
	})
	require.NoError(t, err)
	require.Equal(t, "1\n", string(out.GetStdout()))
	return sandbox.GetPodSandboxId()
}

func pullFromRegistry(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	r, err := NewRegistry(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	image, err := Busybox(t.Context(), "2")
	require.NoError(t, err)
	ref, err := r.Push(t.Context(), "busybox:2", image)
	require.NoError(t, err)
	require.Zero(t, r.Pulls("busybox:2"))

	client := runtimeapi.NewImageServiceClient(conn)
	pull := func(ctx context.Context, auth *runtimeapi.AuthConfig) error {
		_, err := client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Auth: auth})
		return err
	}
	r.Hide("busybox")
	require.Equal(t, codes.NotFound, status.Code(pull(t.Context(), nil)))
	r.Show("busybox")

	r.Protect("busybox", "me", "secret")
	require.Error(t, pull(t.Context(), nil))

	r.Stall("busybox")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	before := r.Pulls("busybox:2")
	go func() { ended <- pull(ctx, &runtimeapi.AuthConfig{Username: "me", Password: "secret"}) }()
	require.Eventually(t, func() bool { return r.Pulls("busybox:2") > before }, readyWait, pollPeriod)
	cancel()
	require.Error(t, <-ended)

	r.Resume("busybox")
	require.NoError(t, pull(t.Context(), &runtimeapi.AuthConfig{Username: "me", Password: "secret"}))
}

func freePort(t *testing.T) int32 {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	addr, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)
	return int32(addr.Port)
}

func TestMissingBinaryNamesThePackage(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	err := Check(Options{Dir: "/x", Flavor: V2, BinDir: t.TempDir()})
	require.ErrorContains(t, err, "containerd-shim-runc-v2")
	require.ErrorContains(t, err, "go install github.com/containerd/containerd/v2/cmd/ctr@v2.4.2")
	if _, err := os.Stat("/usr/bin/containerd"); err == nil {
		require.ErrorContains(t, Check(Options{Dir: "/x"}), "install the Debian package containerd")
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{{}, {Dir: "relative"}, {Dir: "/x", Flavor: "podman"}, {Dir: "/" + string(make([]byte, 90))}} {
		_, err := o.withDefaults()
		require.ErrorContains(t, err, "cannot start containerd")
	}
}

func TestSplitRule(t *testing.T) {
	require.Equal(t, []string{"-A", "CNI-X", "--comment", `name: "ndl1" id: "a b"`, "-j", "CNI-DN-1"},
		splitRule(`-A CNI-X --comment "name: \"ndl1\" id: \"a b\"" -j CNI-DN-1`))
}

func TestSameMachineSameDigest(t *testing.T) {
	var digests []v1.Hash
	for range 2 {
		image, err := Busybox(t.Context(), "1")
		require.NoError(t, err)
		digest, err := image.Digest()
		require.NoError(t, err)
		digests = append(digests, digest)
	}
	require.Equal(t, digests[0], digests[1])
}
