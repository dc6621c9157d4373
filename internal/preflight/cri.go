package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is what the checks ask of a CRI runtime. All of it only reads. Events
// are not among it: in containerd 1.7 whoever subscribes takes one away from the
// agent that runs.
type Runtime interface {
	Version(context.Context) (*runtimeapi.VersionResponse, error)
	// Status is the verbose one.
	Status(context.Context) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	Sandboxes(context.Context) ([]*runtimeapi.PodSandbox, error)
	Images(context.Context) ([]*runtimeapi.Image, error)
	ImageStatus(ctx context.Context, name string) (*runtimeapi.Image, error)
	Close() error
}

// client is a Runtime behind sockets.
type client struct {
	connections []*grpc.ClientConn
	runtime     runtimeapi.RuntimeServiceClient
	images      runtimeapi.ImageServiceClient
}

// messageBytes is how long an answer may be; lists of a full machine are longer
// than what gRPC allows by itself.
const messageBytes = 16 << 20

func connect(runtime, images string) (Runtime, error) {
	c := &client{}
	open := func(path string) (*grpc.ClientConn, error) {
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cannot connect to %s: %w", path, err), c.Close())
		}
		c.connections = append(c.connections, conn)
		return conn, nil
	}
	first, err := open(runtime)
	if err != nil {
		return nil, err
	}
	second, err := open(images)
	if err != nil {
		return nil, err
	}
	c.runtime, c.images = runtimeapi.NewRuntimeServiceClient(first), runtimeapi.NewImageServiceClient(second)
	return c, nil
}

func (c *client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return c.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
}

func (c *client) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
}

func (c *client) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return c.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
}

func (c *client) Sandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return r.GetItems(), err
}

func (c *client) Images(ctx context.Context) ([]*runtimeapi.Image, error) {
	r, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return r.GetImages(), err
}

func (c *client) ImageStatus(ctx context.Context, name string) (*runtimeapi.Image, error) {
	r, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	return r.GetImage(), err
}

func (c *client) Close() error {
	var failures []error
	for _, conn := range c.connections {
		failures = append(failures, conn.Close())
	}
	return errors.Join(failures...)
}

// criConfig is the part of containerd's CRI configuration that its verbose
// status shows and that matters here. The keys are those of containerd 1.6 to
// 2.4; what a version or another runtime does not show stays empty.
type criConfig struct {
	SandboxImage string `json:"sandboxImage"` // until 1.7
	CNI          struct {
		BinDir  string   `json:"binDir"`  // until 2.0
		BinDirs []string `json:"binDirs"` // since 2.1
		ConfDir string   `json:"confDir"`
	} `json:"cni"`
	Containerd struct {
		DefaultRuntimeName string `json:"defaultRuntimeName"`
		Runtimes           map[string]struct {
			Options map[string]any `json:"options"`
		} `json:"runtimes"`
	} `json:"containerd"`
	ContainerdRootDir string `json:"containerdRootDir"`
}

// parseConfig reads the verbose status; the zero value stands for one that is
// not in containerd's form.
func parseConfig(info map[string]string) criConfig {
	var c criConfig
	if err := json.Unmarshal([]byte(info["config"]), &c); err != nil {
		return criConfig{}
	}
	return c
}

// systemdCgroup reports what the options of the default runtime say.
func (c criConfig) systemdCgroup() bool {
	on, is := c.Containerd.Runtimes[c.Containerd.DefaultRuntimeName].Options["SystemdCgroup"].(bool)
	return is && on
}

// confDir and binDirs are where the runtime looks for CNI, or where containerd
// looks by default.
func (c criConfig) confDir() string {
	if c.CNI.ConfDir != "" {
		return c.CNI.ConfDir
	}
	return "/etc/cni/net.d"
}

func (c criConfig) binDirs() []string {
	switch {
	case len(c.CNI.BinDirs) > 0:
		return c.CNI.BinDirs
	case c.CNI.BinDir != "":
		return []string{c.CNI.BinDir}
	}
	return []string{"/opt/cni/bin"}
}

// unserved reports whether the answer is that there is no CRI at this socket.
func unserved(err error) bool {
	return status.Code(err) == codes.Unimplemented && strings.Contains(status.Convert(err).Message(), "unknown service runtime.v1.")
}

// said is what an error of a call tells people.
func said(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return fmt.Sprintf("no answer within %s", callTimeout)
	}
	return status.Convert(err).Message()
}
