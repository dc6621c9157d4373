package probes

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"nodelet.dev/nodelet/internal/pod"
)

// maxBodyBytes is how much of an answer or of an output is read (PRB-20, PRB-21).
const maxBodyBytes = 10 << 10

// newHandler makes what asks the container, once for all turns.
func (m *Manager) newHandler(t *pod.ProbeTarget, timeout time.Duration) (handler, error) {
	probe := t.Probe()
	switch {
	case probe.Exec != nil:
		return &command{
			execer: m.o.Execer, containerID: t.ContainerID, command: expand(probe.Exec.Command, t.Container.Env), timeout: timeout,
		}, nil
	case probe.HTTPGet != nil:
		return newRequest(t, probe.HTTPGet, m.o.UserAgent, timeout)
	case probe.TCPSocket != nil:
		address, err := address(t, probe.TCPSocket.Host, probe.TCPSocket.Port)
		return &connect{address: address, timeout: timeout}, err
	case probe.GRPC != nil:
		address, err := address(t, "", intstr.FromInt32(probe.GRPC.Port))
		service := ""
		if probe.GRPC.Service != nil {
			service = *probe.GRPC.Service
		}
		return &check{address: address, service: service, userAgent: m.o.UserAgent, timeout: timeout}, err
	}
	return nil, pod.Errorf(pod.ClassInvalid, "", "the probe has no handler: give one of exec, httpGet, tcpSocket and grpc")
}

// address returns where a probe goes: to the host that it names or else to the
// pod, and to a port of the container (PRB-23).
func address(t *pod.ProbeTarget, host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.IP
	}
	if host == "" {
		return "", pod.Errorf(pod.ClassInvalid, "", "the pod has no address to probe")
	}
	number, err := portOf(t.Container, port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

func portOf(c *corev1.Container, port intstr.IntOrString) (int, error) {
	number := port.IntValue() // also of a number that was written as a text
	if port.Type == intstr.String && number == 0 {
		for _, named := range c.Ports {
			if named.Name == port.StrVal {
				number = int(named.ContainerPort)
			}
		}
		if number == 0 {
			return 0, pod.Errorf(pod.ClassInvalid, "", "container %s has no port that is called %q", c.Name, port.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, pod.Errorf(pod.ClassInvalid, "", "%s is not a port", port.String())
	}
	return number, nil
}

// dialer makes connections that leave little behind: none is kept alive, and
// closing one waits a second at most (PRB-24).
func dialer() *net.Dialer {
	return &net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
		if err != nil {
			return err
		}
		return failed
	}}
}

// connect is a TCP probe.
type connect struct {
	address string
	timeout time.Duration
}

func (c *connect) ask(ctx context.Context) (r Result, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := dialer().DialContext(ctx, "tcp", c.address)
	if err != nil {
		return Failure, err.Error(), nil
	}
	// It was open, which is all that was asked.
	_ = conn.Close()
	return Success, "", nil
}

// command is an exec probe.
type command struct {
	execer      Execer
	containerID string
	command     []string
	timeout     time.Duration
}

func (c *command) ask(ctx context.Context) (r Result, said string, err error) {
	output, code, err := c.execer.ExecSync(ctx, c.containerID, c.command, c.timeout, maxBodyBytes)
	switch {
	case pod.ClassOf(err) == pod.ClassDeadline:
		return Failure, fmt.Sprintf("command timed out: %q timed out after %v", strings.Join(c.command, " "), c.timeout), nil
	case err != nil:
		return None, "", err
	case code != 0:
		return Failure, output, nil
	}
	return Success, output, nil
}

// expand replaces references to variables whose values the pod itself gives
// (PRB-20, Q-26). Others stay as they are written; a shell in the container
// knows them all.
func expand(words []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	known := expansion.MappingFuncFor(values)
	for i := range env {
		if env[i].ValueFrom == nil {
			values[env[i].Name] = expansion.Expand(env[i].Value, known)
		}
	}
	out := make([]string, 0, len(words))
	for _, word := range words {
		out = append(out, expansion.Expand(word, known))
	}
	return out
}
