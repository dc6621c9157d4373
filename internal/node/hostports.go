package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// ReasonHostPort is the waiting reason of a pod whose host port is taken.
const ReasonHostPort = "HostPortConflict"

// HostPorts arbitrates the ports of the node. A pod claims its ports before its
// sandbox is made, since a port map that is set up twice takes the traffic from
// the first holder; the loser waits and is told who holds the port.
type HostPorts struct {
	mu      sync.Mutex // guards holders for a few lines at a time
	holders map[types.UID]claim
}

type claim struct {
	key   pod.Key
	ports []pod.HostPort
}

// NewHostPorts returns an empty table.
func NewHostPorts() *HostPorts { return &HostPorts{holders: map[types.UID]claim{}} }

// Adopt enters the ports of a pod that runs already, without asking.
func (h *HostPorts) Adopt(p *corev1.Pod) {
	if ports := pod.HostPorts(&p.Spec); len(ports) > 0 {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.holders[p.UID] = claim{key: pod.KeyOf(p), ports: ports}
	}
}

// Claim takes all host ports of the pod, or none and an error that names the
// holder. Claiming again what the pod holds succeeds.
func (h *HostPorts) Claim(ctx context.Context, p *corev1.Pod) error {
	ports := pod.HostPorts(&p.Spec)
	if len(ports) == 0 {
		return nil
	}
	held, err := h.enter(p, ports)
	if held || err != nil || p.Spec.HostNetwork {
		// With the host's network the container itself binds the port.
		return err
	}
	for _, port := range ports {
		if err := probePort(ctx, port); err != nil {
			h.Release(p.UID)
			return pod.Errorf(pod.ClassConflict, ReasonHostPort, "cannot use host port %s for pod %s: %w", portText(port), pod.KeyOf(p), err)
		}
	}
	return nil
}

// enter books the ports and reports whether the pod held them before.
func (h *HostPorts) enter(p *corev1.Pod, ports []pod.HostPort) (held bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, mine := h.holders[p.UID]; mine {
		return true, nil
	}
	for _, c := range h.holders {
		for _, theirs := range c.ports {
			for _, ours := range ports {
				if conflict(ours, theirs) {
					return false, pod.Errorf(pod.ClassConflict, ReasonHostPort,
						"cannot use host port %s for pod %s: pod %s holds it", portText(ours), pod.KeyOf(p), c.key)
				}
			}
		}
	}
	h.holders[p.UID] = claim{key: pod.KeyOf(p), ports: ports}
	return false, nil
}

// Release gives the ports of a pod back.
func (h *HostPorts) Release(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holders, uid)
}

// conflict is ADM-8: the same protocol and port, on one address or on all.
func conflict(a, b pod.HostPort) bool {
	return a.Port == b.Port && a.Protocol == b.Protocol && (a.IP == b.IP || a.IP == "" || b.IP == "")
}

func portText(p pod.HostPort) string {
	text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if p.IP != "" {
		text = net.JoinHostPort(p.IP, text)
	}
	return text
}

// probePort reports whether a process of the machine listens on the port. A
// port map would take its traffic away without an error.
func probePort(ctx context.Context, p pod.HostPort) error {
	address := net.JoinHostPort(p.IP, strconv.Itoa(int(p.Port)))
	var lc net.ListenConfig
	var socket io.Closer
	var err error
	switch p.Protocol {
	case corev1.ProtocolTCP:
		socket, err = lc.Listen(ctx, "tcp", address)
	case corev1.ProtocolUDP:
		socket, err = lc.ListenPacket(ctx, "udp", address)
	default:
		return nil
	}
	if err == nil {
		return socket.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return nil // not ours to judge: the runtime will say it
	}
	return fmt.Errorf("a process of the machine listens on it%s", listener(p))
}

// listener names the process that holds a TCP or UDP port, where that can be
// found out.
func listener(p pod.HostPort) string {
	inode := socketInode(p)
	if inode == "" {
		return ""
	}
	pid, name := socketOwner("socket:[" + inode + "]")
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(": %s (pid %d)", name, pid)
}

// socketInode finds the socket that is bound to a port in /proc/net.
func socketInode(p pod.HostPort) string {
	files := []string{"/proc/net/tcp", "/proc/net/tcp6"}
	state := "0A" // listening
	if p.Protocol == corev1.ProtocolUDP {
		files, state = []string{"/proc/net/udp", "/proc/net/udp6"}, "07"
	}
	suffix := fmt.Sprintf(":%04X", p.Port)
	for _, file := range files {
		for _, line := range procLines(file) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], suffix) && f[3] == state {
				return f[9]
			}
		}
	}
	return ""
}
