package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	politeWait = 20 * time.Second
	// parallelStops bounds how many sandboxes are torn down side by side.
	parallelStops = 4
)

// Stop ends the instance and removes every trace: containers, shims, control groups, network, mounts, directory. It
// first asks CRI, which knows best; what is left, or everything if the daemon is dead, is then found by its files.
func (c *Containerd) Stop(ctx context.Context) error {
	if c.daemon.running() {
		// Its failures need no report: the steps below find and end what remains.
		_ = c.removeSandboxes(ctx)
	}
	var failures []error
	failures = append(failures, c.daemon.terminate(ctx))
	failures = append(failures, c.endShims(ctx))
	failures = append(failures, c.deleteRuncContainers(ctx))
	failures = append(failures, unmountUnder(string(c.layout)))
	failures = append(failures, c.saved.Network.remove(ctx), removeCNICache(string(c.layout)))
	if !c.saved.HadCgroups && !anyContainerd() {
		removeDefaultCgroups()
	}
	// The description goes with the directory, and only when all else is done: a failed stop can be repeated.
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("cannot stop the containerd instance in %s: %w", c.layout, err)
	}
	if err := os.RemoveAll(string(c.layout)); err != nil {
		return fmt.Errorf("cannot remove the containerd instance in %s: %w", c.layout, err)
	}
	return nil
}

func (c *Containerd) removeSandboxes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, politeWait)
	defer cancel()
	return c.withRuntime(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		client := runtimeapi.NewRuntimeServiceClient(conn)
		list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		work := make(chan string)
		var workers sync.WaitGroup
		for range parallelStops {
			workers.Go(func() {
				for id := range work {
					if _, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err == nil {
						// What stays is found by its files
						_, _ = client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
					}
				}
			})
		}
		for _, sandbox := range list.GetItems() {
			work <- sandbox.GetId()
		}
		close(work)
		workers.Wait()
		return nil
	})
}

// endShims kills the instance's shims by pid. A shim names its containerd's socket on its command line.
func (c *Containerd) endShims(ctx context.Context) error {
	for _, path := range c.shimSockets() {
		defer func() { _ = os.Remove(path) }()
	}
	return poll(ctx, func() error {
		pids := c.shimPids()
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("cannot kill the shim with pid %d: %w", pid, err)
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("cannot end the shims with pids %v", pids)
		}
		return nil
	})
}

func (c *Containerd) shimPids() []int {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(cmdline), "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, c.Address()) && startTicks(pid) != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// shimSockets are files outside the directory: containerd puts them into /run/containerd/s whatever its state directory
// is, and a killed shim leaves its own there.
func (c *Containerd) shimSockets() []string {
	var sockets []string
	for _, name := range []string{"address", "bootstrap.json"} {
		paths, err := filepath.Glob(filepath.Join(c.layout.state(), "io.containerd.runtime.v2.task", "*", "*", name))
		if err != nil {
			continue
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			address := string(data)
			var bootstrap struct {
				Address string `json:"address"`
			}
			if json.Unmarshal(data, &bootstrap) == nil {
				address = bootstrap.Address
			}
			if socket, found := strings.CutPrefix(strings.TrimSpace(address), "unix://"); found {
				sockets = append(sockets, socket)
			}
		}
	}
	return sockets
}

// deleteRuncContainers kills what still runs below the shims and removes the control groups that runc made.
func (c *Containerd) deleteRuncContainers(ctx context.Context) error {
	namespaces, err := os.ReadDir(c.layout.runcRoot())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list runc's containers: %w", err)
	}
	var failures []error
	for _, namespace := range namespaces {
		root := filepath.Join(c.layout.runcRoot(), namespace.Name())
		containers, err := os.ReadDir(root)
		if err != nil {
			failures = append(failures, fmt.Errorf("cannot list runc's containers: %w", err))
		}
		for _, container := range containers {
			out, err := exec.CommandContext(ctx, c.saved.Binaries.Runc, "--root", root, "delete", "--force", container.Name()).CombinedOutput()
			if err != nil {
				failures = append(failures, fmt.Errorf("cannot delete runc's container %s: %w: %s", container.Name(), err, out))
			}
		}
	}
	return errors.Join(failures...)
}

func unmountUnder(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("cannot list mounts under %s: %w", dir, err)
	}
	var failures []error
	// Later mounts may lie on earlier ones.
	for _, mount := range slices.Backward(mounts) {
		if err := unix.Unmount(mount.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			failures = append(failures, fmt.Errorf("cannot unmount %s: %w", mount.Mountpoint, err))
		}
	}
	return errors.Join(failures...)
}
