package node

import (
	"fmt"
	"net"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Facts are what does not change while the agent runs.
type Facts struct {
	Name    string   // of the node, in lower case
	HostIPs []string // at most one of each family, IPv4 first
	BootID  string
	// Allocatable is what pods may use: all of it, as long as nothing is reserved.
	Allocatable corev1.ResourceList
	MemoryBytes int64
	// MinOOMScoreAdj is the lowest oom_score_adj that a process of ours may give.
	MinOOMScoreAdj int64
}

// Read collects the facts. An empty name means the host name.
func Read(name string) (Facts, error) {
	f := Facts{Name: strings.ToLower(name)}
	if f.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return f, fmt.Errorf("cannot read the host name: %w", err)
		}
		f.Name = strings.ToLower(host)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return f, fmt.Errorf("cannot read the boot ID: %w", err)
	}
	f.BootID = strings.TrimSpace(string(id))
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return f, fmt.Errorf("cannot read the size of the memory: %w", err)
	}
	f.MemoryBytes = int64(info.Totalram) * int64(info.Unit) //nolint:gosec // a machine's memory fits
	f.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(f.MemoryBytes, resource.BinarySI),
	}
	f.HostIPs = hostIPs()
	f.MinOOMScoreAdj, err = minOOMScoreAdj()
	return f, err
}

// minOOMScoreAdj returns how low an oom_score_adj may be set: as low as there is
// with CAP_SYS_RESOURCE, else not below our own.
func minOOMScoreAdj() (int64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("cannot read our capabilities: %w", err)
	}
	if data[unix.CAP_SYS_RESOURCE/32].Effective&(1<<(unix.CAP_SYS_RESOURCE%32)) != 0 {
		return -1000, nil
	}
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("cannot read our oom_score_adj: %w", err)
	}
	score, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read our oom_score_adj: %w", err)
	}
	return score, nil
}

// hostIPs returns the first global address of each family, of interfaces that
// are up. No packet is sent: a machine without a network has an address too.
func hostIPs() []string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	var v4, v6 string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || virtual(i.Name) {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			n, ok := a.(*net.IPNet)
			if !ok || !n.IP.IsGlobalUnicast() {
				continue
			}
			if n.IP.To4() != nil {
				v4 = first(v4, n.IP.String())
			} else {
				v6 = first(v6, n.IP.String())
			}
		}
	}
	var out []string
	for _, ip := range []string{v4, v6} {
		if ip != "" {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		return []string{"127.0.0.1"}
	}
	return out
}

// virtual reports whether an interface belongs to pods and not to the machine.
func virtual(name string) bool {
	for _, prefix := range []string{"veth", "cni", "docker", "virbr", "nodelet"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func first(old, found string) string {
	if old != "" {
		return old
	}
	return found
}
