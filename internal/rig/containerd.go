package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	versionapi "github.com/containerd/containerd/api/services/version/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	readyWait   = 60 * time.Second
	pollPeriod  = 20 * time.Millisecond
	savedName   = "rig.json"
	messageSize = 16 << 20
)

// Containerd is one private instance. Its methods are for one goroutine, but for Endpoint, Address and Dial.
type Containerd struct {
	layout layout
	saved  saved
	daemon *daemon
}

// saved is what another process must know to end the instance.
type saved struct {
	Flavor   Flavor   `json:"flavor"`
	Binaries binaries `json:"binaries"`
	Network  network  `json:"network"`
	Pid      int      `json:"pid"`
	// StartTicks tells the process from a later one with the same pid.
	StartTicks uint64 `json:"startTicks"`
	// OwnerPid and OwnerTicks are of the test process that the instance belongs to; zero if it belongs to none.
	OwnerPid   int    `json:"ownerPid,omitempty"`
	OwnerTicks uint64 `json:"ownerTicks,omitempty"`
	// HadCgroups tells that control groups of CRI's default name existed before the instance.
	HadCgroups bool `json:"hadCgroups,omitempty"`
}

// Start makes the directory, starts containerd in it, imports the sandbox and busybox images and returns when CRI says
// that runtime and network are ready. The daemon is in a session of its own: it outlives this process unless Stop is
// called, here or by [Open] elsewhere.
func Start(ctx context.Context, o Options) (*Containerd, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	found, err := findBinaries(o)
	if err != nil {
		return nil, err
	}
	l := layout(o.Dir)
	if _, err := os.Stat(l.file(savedName)); err == nil {
		return nil, fmt.Errorf("cannot start containerd in %s: an instance is already there; open or stop it", o.Dir)
	}
	c := &Containerd{layout: l, saved: saved{Flavor: o.Flavor, Binaries: found, HadCgroups: len(defaultCgroups()) > 0}}
	if o.Owned {
		c.saved.OwnerPid, c.saved.OwnerTicks = os.Getpid(), startTicks(os.Getpid())
	}
	if err := c.prepare(ctx, o); err != nil {
		return nil, err
	}
	if err := c.bringUp(ctx); err != nil {
		tail := lastLines(c.Log(), 20)
		return nil, errors.Join(fmt.Errorf("cannot start containerd in %s: %w\n%s", o.Dir, err, tail), c.Stop(ctx))
	}
	return c, nil
}

// Open finds the instance in dir again, whichever process started it, running or not.
func Open(dir string) (*Containerd, error) {
	data, err := os.ReadFile(filepath.Join(dir, savedName))
	if err != nil {
		return nil, fmt.Errorf("cannot open the containerd instance in %s: %w", dir, err)
	}
	c := &Containerd{layout: layout(dir)}
	if err := json.Unmarshal(data, &c.saved); err != nil {
		return nil, fmt.Errorf("cannot open the containerd instance in %s: %w", dir, err)
	}
	c.daemon = findDaemon(c.saved.Pid, c.saved.StartTicks)
	return c, nil
}

func (c *Containerd) prepare(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return fmt.Errorf("cannot make the instance's directory: %w", err)
	}
	var err error
	if c.saved.Network, err = pickNetwork(ctx); err != nil {
		return err
	}
	if err := writeConfig(c.layout, o.Flavor, Settings{}); err != nil {
		return err
	}
	return writeCNI(c.layout, c.saved.Network, o.Masquerade)
}

func (c *Containerd) bringUp(ctx context.Context) error {
	if err := c.startDaemon(); err != nil {
		return err
	}
	busybox, err := Busybox(ctx, "1")
	if err != nil {
		return err
	}
	pause, err := Pause(ctx)
	if err != nil {
		return err
	}
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	return c.Import(ctx, map[string]v1.Image{BusyboxImage: busybox, PauseImage: pause})
}

func (c *Containerd) startDaemon() error {
	d, err := startDaemon(c.saved.Binaries, c.layout)
	if err != nil {
		return err
	}
	c.daemon = d
	c.saved.Pid, c.saved.StartTicks = d.pid, d.startTicks
	return c.save()
}

func (c *Containerd) save() error {
	data, err := json.MarshalIndent(c.saved, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the instance's description: %w", err)
	}
	if err := os.WriteFile(c.layout.file(savedName), data, 0o600); err != nil {
		return fmt.Errorf("cannot write the instance's description: %w", err)
	}
	return nil
}

// Address is the path of the instance's socket.
func (c *Containerd) Address() string { return c.layout.socket() }

// Endpoint is the socket as CRI clients want it.
func (c *Containerd) Endpoint() string { return "unix://" + c.Address() }

// Dir is the directory that holds the instance.
func (c *Containerd) Dir() string { return string(c.layout) }

// Flavor is the build that the instance runs.
func (c *Containerd) Flavor() Flavor { return c.saved.Flavor }

// Ctr is the path of the client program that belongs to the instance's build.
func (c *Containerd) Ctr() string { return c.saved.Binaries.Ctr }

// Log returns what the daemon has written so far, over all its restarts.
func (c *Containerd) Log() string {
	data, err := os.ReadFile(c.layout.log())
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Dial connects to the instance. The connection is the caller's to close.
func (c *Containerd) Dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageSize)))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", c.Endpoint(), err)
	}
	return conn, nil
}

// Kill9 ends the daemon as a crash would. Containers and their shims go on running.
func (c *Containerd) Kill9(ctx context.Context) error {
	return c.daemon.kill(ctx)
}

// Restart ends the daemon in good order if it runs, starts it again and waits until it is ready. Containers go on.
func (c *Containerd) Restart(ctx context.Context) error {
	if err := c.daemon.terminate(ctx); err != nil {
		return err
	}
	if err := c.startDaemon(); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// Reconfigure writes the configuration anew and restarts the daemon with it. It waits until CRI is ready, or where that
// is disabled until containerd answers.
func (c *Containerd) Reconfigure(ctx context.Context, s Settings) error {
	if err := writeConfig(c.layout, c.saved.Flavor, s); err != nil {
		return err
	}
	if !s.DisableCRI {
		return c.Restart(ctx)
	}
	if err := c.daemon.terminate(ctx); err != nil {
		return err
	}
	if err := c.startDaemon(); err != nil {
		return err
	}
	return c.withRuntime(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		return poll(ctx, func() error {
			if !c.daemon.running() {
				return errGone
			}
			_, err := versionapi.NewVersionClient(conn).Version(ctx, &emptypb.Empty{})
			return err
		})
	})
}

// CNIConfig is the path of the instance's network configuration.
func (c *Containerd) CNIConfig() string { return filepath.Join(c.layout.cniConf(), cniConfigName) }

func (c *Containerd) waitReady(ctx context.Context) error {
	return c.withRuntime(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		return poll(ctx, func() error {
			if !c.daemon.running() {
				return errGone
			}
			status, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
			if err != nil {
				return err
			}
			for _, condition := range status.GetStatus().GetConditions() {
				// Only these two are about readiness; containerd also reports deprecation warnings this way.
				if (condition.GetType() == "RuntimeReady" || condition.GetType() == "NetworkReady") && !condition.GetStatus() {
					return fmt.Errorf("containerd is not ready: %s: %s %s", condition.GetType(), condition.GetReason(), condition.GetMessage())
				}
			}
			return nil
		})
	})
}

func (c *Containerd) waitImage(ctx context.Context, ref string) error {
	return c.withRuntime(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		return poll(ctx, func() error {
			status, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx,
				&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
			if err != nil {
				return err
			}
			if status.GetImage() == nil {
				return fmt.Errorf("CRI does not show image %s", ref)
			}
			return nil
		})
	})
}

func (c *Containerd) withRuntime(ctx context.Context, do func(context.Context, *grpc.ClientConn) error) error {
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	return do(ctx, conn)
}

var errGone = errors.New("containerd ended")

// poll asks until the answer is nil, the daemon is gone or the context ends, and then returns the last answer.
func poll(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollPeriod):
		}
	}
}

// Running reports whether the daemon runs.
func (c *Containerd) Running() bool { return c.daemon.running() }
