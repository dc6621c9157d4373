package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// A runtime that loses its client cancels the calls in flight. For a container
// in the middle of its start that means: it may have run for a moment, it was
// killed, and all that is left is a start error. Nothing tells whether it ran,
// so a job could be run twice or not at all. Therefore the connection on which
// sandboxes and containers are made and started is also held open by a process
// that does nothing else. When the agent is killed, the runtime finishes these
// calls, and the next agent finds what became of them.

// keeperScript waits until the agent is gone, and then a while for the calls.
// Events do not come over this connection, so nothing piles up meanwhile.
const keeperScript = "read -r _ <&3; exec sleep 60"

// keptConn is a connection that a keeper holds open too.
type keptConn struct {
	net.Conn
	end func() // ends the keeper; once
}

// Close closes the connection and ends its keeper.
func (c *keptConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

// dialKept connects to a unix socket and starts the connection's keeper. Where
// that is not possible, the connection works all the same.
func dialKept(ctx context.Context, endpoint string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return nil, err
	}
	end, err := startKeeper(conn)
	if err != nil {
		klog.InfoS("Cannot hold the connection to the runtime open: a container that is starting when the agent is killed may start twice", "err", err)
		return conn, nil
	}
	return &keptConn{Conn: conn, end: end}, nil
}

// startKeeper starts a process that has the connection open and ends a while
// after this one does. It returns what ends it at once.
func startKeeper(conn net.Conn) (end func(), err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%T is not a unix socket", conn)
	}
	held, err := socket.File()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	// The write end lives as long as this process.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, read.Close()) }()
	keeper := exec.Command("/bin/sh", "-c", keeperScript) //nolint:noctx // it outlives every context on purpose
	keeper.ExtraFiles = []*os.File{read, held}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's signals are not for it
	if err := errors.Join(keeper.Start(), nonblocking(socket)); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return sync.OnceFunc(func() {
		// It is killed, and waited for so that no zombie stays; neither can fail in
		// a way that matters.
		_ = keeper.Process.Kill()
		_ = keeper.Wait()
		_ = write.Close()
	}), nil
}

// nonblocking undoes what handing a socket to a process does to it: the copy
// shares the mode of the original, and is made blocking on the way.
func nonblocking(socket *net.UnixConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.SetNonblock(int(fd), true) })
	return errors.Join(err, failed)
}

// keptService sends the calls that must not be cut off over a kept connection.
type keptService struct {
	runtimeService
	kept *dialerServices
}

func (s keptService) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	return s.kept.RunPodSandbox(ctx, config, handler)
}

func (s keptService) CreateContainer(ctx context.Context, id string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	return s.kept.CreateContainer(ctx, id, config, sandbox)
}

func (s keptService) StartContainer(ctx context.Context, id string) error {
	return s.kept.StartContainer(ctx, id)
}

// Close closes both connections.
func (s keptService) Close(ctx context.Context) error {
	return errors.Join(s.kept.Close(ctx), s.runtimeService.Close(ctx))
}
