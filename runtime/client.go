package runtime

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// How long to wait between attempts to connect, and for one attempt.
const (
	dialBackoffMin = 100 * time.Millisecond
	dialBackoffMax = 3 * time.Second
	dialTimeout    = 10 * time.Second
)

// Client speaks to one CRI runtime. All methods are safe for concurrent use.
// They work while Run runs.
type Client struct {
	o    Options
	dial func(context.Context, Options) (*connection, error)

	// conn is nil until the runtime answered for the first time; Run sets it.
	conn      atomic.Pointer[connection]
	connected chan struct{} // closed by Run once conn is set
	// absence is why the last attempt to connect failed; Run sets it.
	absence atomic.Pointer[error]
	running atomic.Bool

	cache         *detailCache
	images        *imageUsers
	pulls         *flights
	pullSlots     *semaphore.Weighted
	pullRate      *rate.Limiter
	pullsWaiting  atomic.Int64
	sandboxStarts *semaphore.Weighted
	eventSource   atomic.Value // of string: what Status reports
	kill          killer
	maskedPaths   []string
}

// New returns a client that is not connected yet.
func New(o Options) *Client {
	o = o.withDefaults()
	limit, burst := pullRate(o.PullQPS, o.PullBurst)
	c := &Client{
		o:             o,
		dial:          dial,
		connected:     make(chan struct{}),
		cache:         newDetailCache(),
		images:        newImageUsers(),
		pulls:         newFlights(),
		pullSlots:     semaphore.NewWeighted(int64(o.MaxParallelPulls)),
		pullRate:      rate.NewLimiter(limit, burst),
		sandboxStarts: semaphore.NewWeighted(int64(o.MaxSandboxStarts)),
		kill:          killByPidfd,
		maskedPaths:   throttlePaths(),
	}
	c.eventSource.Store(EventsNone)
	return c
}

// Run connects, trying for as long as it takes, and runs the shared pulls until
// ctx ends. It waits for what it started. A Client runs once.
func (c *Client) Run(ctx context.Context) error {
	if c.o.RuntimeEndpoint == "" && c.o.Dialer == nil {
		return pod.Errorf(pod.ClassInvalid, "", "cannot connect to the container runtime: no endpoint is given")
	}
	if c.running.Swap(true) {
		return pod.Errorf(pod.ClassInvalid, "", "cannot run the runtime client twice")
	}
	if err := c.connect(ctx); err != nil {
		return nil // only the end of ctx gets here
	}
	var pulls sync.WaitGroup
	defer func() {
		close(c.pulls.ended)
		pulls.Wait()
		if conn := c.conn.Swap(nil); conn != nil {
			conn.close(quiet(ctx))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.pulls.wake:
			for _, f := range c.pulls.take() {
				pulls.Go(func() { c.fly(ctx, f) })
			}
		}
	}
}

// Connect waits until Run has reached the runtime.
func (c *Client) Connect(ctx context.Context) error {
	select {
	case <-c.connected:
		return nil
	case <-ctx.Done():
		return failed(ctx.Err(), "", "connect to the container runtime at %s", c.o.RuntimeEndpoint)
	}
}

func (c *Client) connect(ctx context.Context) error {
	wait := dialBackoffMin
	for {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := c.dial(quiet(attempt), c.o)
		cancel()
		c.o.Observe("Connect", time.Since(began), err)
		if err == nil {
			c.conn.Store(conn)
			close(c.connected)
			return nil
		}
		if why := unreachable(c.o.RuntimeEndpoint, err); ctx.Err() == nil {
			c.absence.Store(&why)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, dialBackoffMax)
	}
}

// call runs one call under its CRI name.
func (c *Client) call(ctx context.Context, op string, f func(context.Context, *connection) error) error {
	conn := c.conn.Load()
	if conn == nil {
		return c.notConnected()
	}
	ctx, end := c.o.Trace(ctx, op)
	began := time.Now()
	err := f(quiet(ctx), conn)
	c.o.Observe(op, time.Since(began), err)
	end(err)
	return err
}

func (c *Client) notConnected() error {
	if why := c.absence.Load(); why != nil {
		return pod.Errorf(pod.ClassUnavailable, "", "cannot call the container runtime: %w", *why)
	}
	return pod.Errorf(pod.ClassUnavailable, "", "cannot call the container runtime: %s is not connected", c.o.RuntimeEndpoint)
}

// node returns what conversions need to know of the machine. Its resolver
// configuration may change while we run.
func (c *Client) node() (convert.Node, error) {
	resolv := convert.NoResolvConf
	if c.o.ResolvConf != "" {
		text, err := os.ReadFile(c.o.ResolvConf)
		if err != nil {
			return convert.Node{}, pod.Errorf(pod.ClassUnknown, convert.ReasonSandboxConfig, "cannot read the node's resolver configuration: %w", err)
		}
		resolv = string(text)
	}
	return convert.Node{
		Name: c.o.NodeName, HostIPs: c.o.HostIPs, PodLogsDir: c.o.PodLogsDir, ResolvConf: resolv,
		ClusterDNS: c.o.ClusterDNS, ClusterDomain: c.o.ClusterDomain, Allocatable: c.o.Allocatable,
		MemoryCapacityBytes: c.o.MemoryCapacityBytes, MinOOMScoreAdj: c.o.MinOOMScoreAdj,
		SeccompDir: c.o.SeccompDir, MaskedPaths: c.maskedPaths,
	}, nil
}

// throttlePaths are files of processors that give away what else the machine is
// doing, so they are masked where they exist (SEC-10).
func throttlePaths() []string {
	paths, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	if err != nil {
		return nil // the pattern is a constant and valid
	}
	slices.Sort(paths)
	return paths
}

// quiet keeps the CRI library from logging errors that we return anyway: a
// logger without a sink drops everything.
func quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.Logger{})
}
