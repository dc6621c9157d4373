package conformance

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// patience is for anything that should happen soon; a loaded machine is slow.
	patience   = time.Minute
	pollPeriod = 20 * time.Millisecond
	// noSuchID has the form of an id.
	noSuchID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// suite is one case's view of the target, with its own pods.
type suite struct {
	*testing.T
	Target
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	ctx    context.Context //nolint:containedctx // a case is one call tree and this is the test's own
	// mark is the value of a label of everything that the case makes.
	mark string
}

// pod is a sandbox and the config that it was made with.
type pod struct {
	id     string
	config *runtimeapi.PodSandboxConfig
}

const markLabel = "conformance"

func newSuite(t *testing.T, target Target) *suite {
	t.Helper()
	return &suite{
		T: t, Target: target, ctx: t.Context(), mark: uuid.NewString(),
		RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(target.Conn),
		images:               runtimeapi.NewImageServiceClient(target.Conn),
	}
}

func (s *suite) podConfig(name string) *runtimeapi.PodSandboxConfig {
	s.Helper()
	logs, err := os.MkdirTemp(s.TempDir(), "logs")
	require.NoError(s, err)
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "conformance", Uid: uuid.NewString()},
		Labels:       map[string]string{markLabel: s.mark},
		LogDirectory: logs,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func (s *suite) runPod(name string) pod {
	s.Helper()
	return s.runPodWith(s.podConfig(name))
}

func (s *suite) runPodWith(config *runtimeapi.PodSandboxConfig) pod {
	s.Helper()
	answer, err := s.RunPodSandbox(s.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	require.NoError(s, err)
	p := pod{id: answer.GetPodSandboxId(), config: config}
	s.Cleanup(func() {
		// The case's own context has ended. Removing twice is harmless.
		_, err := s.RemovePodSandbox(context.Background(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		require.NoError(s, err)
	})
	return p
}

func (s *suite) containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: s.Image},
		Command:  command,
		Labels:   map[string]string{markLabel: s.mark, "name": name},
		LogPath:  name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func (s *suite) tryCreate(p pod, config *runtimeapi.ContainerConfig) (string, error) {
	answer, err := s.CreateContainer(s.ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	return answer.GetContainerId(), err
}

func (s *suite) create(p pod, config *runtimeapi.ContainerConfig) string {
	s.Helper()
	id, err := s.tryCreate(p, config)
	require.NoError(s, err)
	return id
}

func (s *suite) tryStart(id string) error {
	_, err := s.StartContainer(s.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// run creates and starts a container.
func (s *suite) run(p pod, name string, command ...string) string {
	s.Helper()
	id := s.create(p, s.containerConfig(name, command...))
	require.NoError(s, s.tryStart(id))
	return id
}

func (s *suite) stop(ctx context.Context, id string, graceSeconds int64) error {
	_, err := s.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: graceSeconds})
	return err
}

func (s *suite) status(id string) *runtimeapi.ContainerStatus {
	s.Helper()
	answer, err := s.ContainerStatus(s.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	require.NoError(s, err)
	return answer.GetStatus()
}

func (s *suite) podStatus(id string) *runtimeapi.PodSandboxStatus {
	s.Helper()
	answer, err := s.PodSandboxStatus(s.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	require.NoError(s, err)
	return answer.GetStatus()
}

func (s *suite) waitExited(id string) *runtimeapi.ContainerStatus {
	s.Helper()
	var last *runtimeapi.ContainerStatus
	s.eventually(func() bool {
		last = s.status(id)
		return last.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}, "container %s should exit", id)
	return last
}

// eventually asks on the test's goroutine, so that a failing question ends the test.
func (s *suite) eventually(ask func() bool, format string, args ...any) {
	s.Helper()
	for deadline := time.Now().Add(patience); !ask(); time.Sleep(pollPeriod) {
		if time.Now().After(deadline) {
			require.Failf(s, "timed out", format, args...)
		}
	}
}

// waitLog returns when a container's log holds the text, for example when a program has said that its trap is set.
func (s *suite) waitLog(p pod, container, text string) {
	s.Helper()
	path := filepath.Join(p.config.GetLogDirectory(), container+".log")
	s.eventually(func() bool {
		data, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(data), text)
	}, "log %s should hold %q", path, text)
}

func (s *suite) code(err error) codes.Code { return status.Code(err) }
