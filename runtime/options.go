package runtime

import (
	"context"
	"net"
	goruntime "runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options configure a Client. Only RuntimeEndpoint is required.
type Options struct {
	// RuntimeEndpoint is the CRI socket, as a path or a unix:// URL.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the image service, by default the same.
	ImageEndpoint string
	// PodLogsDir holds the logs of all pods; default /var/log/pods.
	PodLogsDir string
	// ContainerLogLinksDir holds the links that log collectors follow; empty
	// means none are made.
	ContainerLogLinksDir string
	NodeName             string
	// HostIPs are the addresses of the machine, primary first.
	HostIPs []string
	// ResolvConf is the path of the machine's resolver configuration; empty
	// gives containers none of it (DNS-4).
	ResolvConf    string
	ClusterDNS    []string
	ClusterDomain string
	// RequestTimeout limits each call; creating a sandbox gets twice that, a
	// stop gets its grace period on top, a pull has no limit (C-21). Default 2 min.
	RequestTimeout time.Duration
	// MaxParallelPulls limits pulls at one time; default 4.
	MaxParallelPulls int
	// PullQPS and PullBurst limit how often a pull begins. More requests wait,
	// they do not fail. Zero means no limit.
	PullQPS   float64
	PullBurst int
	// MaxSandboxStarts limits sandboxes in the making; default twice the cores,
	// at least four and at most eight.
	MaxSandboxStarts int
	// Allocatable is what pods may use of the machine.
	Allocatable corev1.ResourceList
	// MemoryCapacityBytes is what oom_score_adj is relative to; zero means the
	// allocatable memory.
	MemoryCapacityBytes int64
	// MinOOMScoreAdj is the lowest score that the machine lets the runtime set.
	MinOOMScoreAdj int64
	// SeccompDir is where relative Localhost profiles are looked up.
	SeccompDir string
	// Credentials returns the node's credentials for an image, in the order in
	// which to try them. What is returned beside an error is used; a pull that is
	// refused then tells of the error. Nil means that there are none.
	Credentials func(ctx context.Context, image string) ([]Auth, error)
	// Arriving waits for the next images that come without a registry, and reports
	// whether there was anything to wait for. It is asked when an image is missing.
	Arriving func(ctx context.Context) bool
	// Dialer makes the connections instead, for runtimes that no socket leads to.
	// RuntimeEndpoint is handed to it and need not be a socket then.
	Dialer func(ctx context.Context, endpoint string) (net.Conn, error)
	// Observe is told of every call: its name, how long it took, and how it ended.
	// It must be quick and safe for concurrent use.
	Observe func(op string, took time.Duration, err error)
	// Trace, if set, is asked before every call: the call gets the context that it
	// returns, and how the call ended is told to what it returns beside. A pull
	// that callers share is traced for the first of them.
	Trace func(ctx context.Context, op string) (traced context.Context, end func(error))
	// Pulled, if set, is told of every pull that succeeded: how long it took
	// without its wait for a turn, and the size of the image.
	Pulled func(took time.Duration, sizeBytes int64)
}

// DefaultContainerLogLinksDir is where log collectors look for links.
const DefaultContainerLogLinksDir = "/var/log/containers"

func (o Options) withDefaults() Options {
	if o.Dialer == nil {
		o.RuntimeEndpoint = endpointURL(o.RuntimeEndpoint)
		o.ImageEndpoint = endpointURL(o.ImageEndpoint)
	}
	if o.ImageEndpoint == "" {
		o.ImageEndpoint = o.RuntimeEndpoint
	}
	if o.PodLogsDir == "" {
		o.PodLogsDir = "/var/log/pods"
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 2 * time.Minute
	}
	if o.MaxParallelPulls <= 0 {
		o.MaxParallelPulls = 4
	}
	if o.MaxSandboxStarts <= 0 {
		o.MaxSandboxStarts = min(max(2*goruntime.NumCPU(), 4), 8)
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	if o.Trace == nil {
		o.Trace = func(ctx context.Context, _ string) (context.Context, func(error)) { return ctx, func(error) {} }
	}
	if o.Pulled == nil {
		o.Pulled = func(time.Duration, int64) {}
	}
	return o
}

func endpointURL(endpoint string) string {
	if endpoint == "" || strings.Contains(endpoint, "://") {
		return endpoint
	}
	return "unix://" + endpoint
}
