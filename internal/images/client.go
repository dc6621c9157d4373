package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/platforms"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespace is where CRI keeps its images.
const namespace = "k8s.io"

// Labels of images.
const (
	labelPinned   = "io.cri-containerd.pinned"
	valuePinned   = "pinned"
	labelArchive  = "nodelet.dev/archive." // and a hash of the archive's name
	labelSandbox  = `labels."io.cri-containerd.kind"==sandbox`
	mediaUnknown  = "vnd.docker.reference.type"
	snapshotterID = "io.containerd.snapshotter.v1."
)

// Bounds of single calls. Imports have none but their context.
const (
	connectTimeout = 10 * time.Second
	showTimeout    = 10 * time.Second // until CRI shows what was imported
	showPeriod     = 20 * time.Millisecond
)

// Client speaks to one containerd. Its methods are safe for concurrent use.
type Client struct {
	endpoint    string
	client      *containerd.Client
	runtime     runtimeapi.RuntimeServiceClient
	images      runtimeapi.ImageServiceClient
	platform    platforms.MatchComparer
	snapshotter string // CRI's
}

// Connect connects to the containerd of a CRI endpoint, a path or a unix:// URL.
// The error is an *UnavailableError when nobody answers, and tells permissions
// and runtimes other than containerd apart from that.
func Connect(ctx context.Context, endpoint string) (*Client, error) {
	address := strings.TrimPrefix(endpoint, "unix://")
	if strings.Contains(address, "://") || address == "" {
		return nil, fmt.Errorf("cannot reach containerd at %q: only unix sockets are supported", endpoint)
	}
	if err := dial(ctx, address); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("cannot open %s: permission denied; run with sudo", address)
		}
		return nil, &UnavailableError{Endpoint: address, Err: err}
	}
	client, err := containerd.New(address, containerd.WithDefaultNamespace(namespace), containerd.WithTimeout(connectTimeout))
	if err != nil {
		return nil, &UnavailableError{Endpoint: address, Err: err}
	}
	c := &Client{endpoint: address, client: client, platform: platforms.Default()}
	if err := c.meet(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return c, nil
}

// dial finds out what the library would only try again and again.
func dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// meet checks that this is containerd with its CRI service, and asks which
// snapshotter CRI uses: the file system that it reports is named after it.
func (c *Client) meet(ctx context.Context) error {
	conn, ok := c.client.Conn().(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("cannot speak CRI to containerd at %s: the connection is no gRPC", c.endpoint)
	}
	c.runtime, c.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	version, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("cannot use containerd at %s: it has no CRI service; remove cri from disabled_plugins in its configuration and restart it", c.endpoint)
	case err != nil:
		return &UnavailableError{Endpoint: c.endpoint, Err: err}
	case version.GetRuntimeName() != "containerd":
		return fmt.Errorf("cannot manage images at %s: the runtime is %s, and images can be imported and pinned with containerd alone", c.endpoint, version.GetRuntimeName())
	}
	info, err := c.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return fmt.Errorf("cannot ask containerd at %s for its image file system: %w", c.endpoint, err)
	}
	for _, f := range info.GetImageFilesystems() {
		if name, ok := strings.CutPrefix(path.Base(f.GetFsId().GetMountpoint()), snapshotterID); ok {
			c.snapshotter = name
			return nil
		}
	}
	return nil // an empty name means containerd's default
}

// Close ends the connection.
func (c *Client) Close() error { return c.client.Close() }
