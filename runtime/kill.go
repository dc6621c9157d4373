package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// killer sends SIGKILL to a process after making sure that it belongs to the
// container with the given ID.
type killer func(pid int, containerID string) error

// KillContainer kills the first process of a container directly. It is for a
// runtime that fails to stop a container; one that does not run counts as
// killed. The runtime notices the end by itself.
func (c *Client) KillContainer(ctx context.Context, id string) error {
	var response *runtimeapi.ContainerStatusResponse
	err := c.call(ctx, "ContainerStatus", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.runtime.ContainerStatus(ctx, id, true)
		return err
	})
	switch {
	case isNotFound(err):
		return nil
	case err != nil:
		return failed(err, ReasonKillContainer, "kill container %s", id)
	case response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED,
		response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		return nil
	}
	pid, err := pidOf(response.GetInfo())
	if err != nil {
		return failed(err, ReasonKillContainer, "kill container %s", id)
	}
	if err := c.kill(pid, id); err != nil {
		return failed(err, ReasonKillContainer, "kill container %s", id)
	}
	return nil
}

// pidOf reads the process ID from the verbose status of a container. Its form is
// the runtime's own; containerd and CRI-O agree on this much.
func pidOf(info map[string]string) (int, error) {
	var parsed struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &parsed); err != nil {
		return 0, fmt.Errorf("cannot read the runtime's verbose status: %w", err)
	}
	if parsed.Pid <= 1 {
		return 0, pod.Errorf(pod.ClassUnknown, "", "the runtime's verbose status names no process")
	}
	return parsed.Pid, nil
}

// killByPidfd holds on to the process before it looks whose it is, so that a
// process ID that is used again cannot hit a stranger.
func killByPidfd(pid int, containerID string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	cgroup, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the cgroup of process %d: %w", pid, err)
	}
	if !strings.Contains(string(cgroup), containerID) {
		return fmt.Errorf("process %d does not belong to the container", pid)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return nil
}
