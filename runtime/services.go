package runtime

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-client/pkg"
)

// runtimeService is what the client uses of CRI's runtime service.
type runtimeService interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, containerID string) error
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
	// ExecSync returns an exit code that is not zero as an exec.CodeExitError, and
	// the end of its time as cri.ErrCommandTimedOut.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
		established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
	Close(ctx context.Context) error
}

// imageService is what the client uses of CRI's image service.
type imageService interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	Close(ctx context.Context) error
}

// connection is a pair of services that answered once. The library under them
// reconnects by itself.
type connection struct {
	runtime runtimeService
	images  imageService
}

// dial connects to both services. It fails when the runtime does not answer.
func dial(ctx context.Context, o Options) (*connection, error) {
	if o.Dialer != nil {
		return dialWith(ctx, o)
	}
	// The list RPCs that stream are not limited in size, and the library falls
	// back to the old ones by itself.
	rt, err := cri.NewRemoteRuntimeServiceBuilder().
		WithEndpoint(o.RuntimeEndpoint).WithConnectionTimeout(o.RequestTimeout).
		WithTracerProvider(nil).WithUseStreaming(true).Build(ctx)
	if err != nil {
		return nil, failed(err, "", "connect to the container runtime at %s", o.RuntimeEndpoint)
	}
	images, err := cri.NewRemoteImageServiceBuilder().
		WithEndpoint(o.ImageEndpoint).WithConnectionTimeout(o.RequestTimeout).
		WithTracerProvider(nil).Build(ctx)
	if err != nil {
		// The one error to report is the image service's.
		_ = rt.Close(ctx)
		return nil, failed(err, "", "connect to the image service at %s", o.ImageEndpoint)
	}
	o.Dialer = dialKept
	kept, err := dialServices(ctx, o)
	if err != nil {
		_, _ = rt.Close(ctx), images.Close(ctx)
		return nil, err
	}
	return &connection{runtime: keptService{runtimeService: rt, kept: kept}, images: images}, nil
}

func (c *connection) close(ctx context.Context) {
	// Closing can only say that it is closed already.
	_ = c.runtime.Close(ctx)
	_ = c.images.Close(ctx)
}
