package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"
)

// maxMessageBytes is what the CRI library takes too.
const maxMessageBytes = 16 << 20

// dialerServices serve a connection that a dialer of ours makes. The library
// dials sockets itself and takes no dialer; this speaks to a runtime in memory,
// for code that runs in a testing/synctest bubble, and over a connection that is
// kept open beyond the agent's end. Timeouts are the library's.
type dialerServices struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	timeout time.Duration
}

func dialWith(ctx context.Context, o Options) (*connection, error) {
	s, err := dialServices(ctx, o)
	if err != nil {
		return nil, err
	}
	return &connection{runtime: s, images: s}, nil
}

// dialServices connects through the dialer of the options. It fails when the
// runtime does not answer.
func dialServices(ctx context.Context, o Options) (*dialerServices, error) {
	conn, err := grpc.NewClient("passthrough:///"+o.RuntimeEndpoint, grpc.WithContextDialer(o.Dialer),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(connectParams()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	if err != nil {
		return nil, failed(err, "", "connect to the container runtime at %s", o.RuntimeEndpoint)
	}
	s := &dialerServices{
		conn: conn, timeout: o.RequestTimeout,
		runtime: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn),
	}
	if _, err := s.Version(ctx, ""); err != nil {
		// The one error to report is that nobody answers.
		_ = conn.Close()
		return nil, failed(err, "", "connect to the container runtime at %s", o.RuntimeEndpoint)
	}
	return s, nil
}

// connectParams are the library's: gRPC's own would leave a runtime that was away
// for long alone for up to two minutes after it came back.
func connectParams() grpc.ConnectParams {
	delays := backoff.DefaultConfig
	delays.BaseDelay, delays.MaxDelay = dialBackoffMin, dialBackoffMax
	return grpc.ConnectParams{Backoff: delays, MinConnectTimeout: dialTimeout}
}

// Close closes the connection. The second of the two services finds it closed.
func (s *dialerServices) Close(context.Context) error {
	if err := s.conn.Close(); err != nil && !errors.Is(err, grpc.ErrClientConnClosing) { //nolint:staticcheck // Close still returns it
		return fmt.Errorf("cannot close the connection: %w", err)
	}
	return nil
}

// within runs a unary call with a timeout; zero means none.
func within[Request, Response any](
	ctx context.Context, timeout time.Duration, r Request,
	call func(context.Context, Request, ...grpc.CallOption) (Response, error),
) (Response, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return call(ctx, r)
}

func (s *dialerServices) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return within(ctx, s.timeout, &runtimeapi.VersionRequest{Version: apiVersion}, s.runtime.Version)
}

func (s *dialerServices) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return within(ctx, s.timeout, &runtimeapi.StatusRequest{Verbose: verbose}, s.runtime.Status)
}

func (s *dialerServices) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r, err := within(ctx, 2*s.timeout, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}, s.runtime.RunPodSandbox)
	return r.GetPodSandboxId(), err
}

func (s *dialerServices) StopPodSandbox(ctx context.Context, id string) error {
	_, err := within(ctx, s.timeout, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}, s.runtime.StopPodSandbox)
	return err
}

func (s *dialerServices) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := within(ctx, s.timeout, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}, s.runtime.RemovePodSandbox)
	return err
}

func (s *dialerServices) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return within(ctx, s.timeout, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose}, s.runtime.PodSandboxStatus)
}

func (s *dialerServices) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := within(ctx, s.timeout, &runtimeapi.ListPodSandboxRequest{Filter: filter}, s.runtime.ListPodSandbox)
	return r.GetItems(), err
}

func (s *dialerServices) CreateContainer(ctx context.Context, id string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := within(ctx, s.timeout, &runtimeapi.CreateContainerRequest{PodSandboxId: id, Config: config, SandboxConfig: sandbox}, s.runtime.CreateContainer)
	return r.GetContainerId(), err
}

func (s *dialerServices) StartContainer(ctx context.Context, id string) error {
	_, err := within(ctx, s.timeout, &runtimeapi.StartContainerRequest{ContainerId: id}, s.runtime.StartContainer)
	return err
}

func (s *dialerServices) StopContainer(ctx context.Context, id string, seconds int64) error {
	_, err := within(ctx, s.timeout+time.Duration(seconds)*time.Second,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds}, s.runtime.StopContainer)
	return err
}

func (s *dialerServices) RemoveContainer(ctx context.Context, id string) error {
	_, err := within(ctx, s.timeout, &runtimeapi.RemoveContainerRequest{ContainerId: id}, s.runtime.RemoveContainer)
	return err
}

func (s *dialerServices) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	r, err := within(ctx, s.timeout+timeout,
		&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64(timeout.Seconds())}, s.runtime.ExecSync)
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, nil, fmt.Errorf("%w: %w", cri.ErrCommandTimedOut, err)
	case err != nil:
		return nil, nil, err
	case r.GetExitCode() != 0:
		err = utilexec.CodeExitError{Err: fmt.Errorf("the command ended with %d", r.GetExitCode()), Code: int(r.GetExitCode())}
	}
	return r.GetStdout(), r.GetStderr(), err
}

func (s *dialerServices) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := within(ctx, s.timeout, &runtimeapi.ListContainersRequest{Filter: filter}, s.runtime.ListContainers)
	return r.GetContainers(), err
}

func (s *dialerServices) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return within(ctx, s.timeout, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose}, s.runtime.ContainerStatus)
}

func (s *dialerServices) GetContainerEvents(
	ctx context.Context, events chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	stream, err := s.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		events <- event
	}
}

func (s *dialerServices) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return within(ctx, s.timeout, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose}, s.images.ImageStatus)
}

func (s *dialerServices) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	r, err := within(ctx, 0, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox}, s.images.PullImage)
	return r.GetImageRef(), err
}
