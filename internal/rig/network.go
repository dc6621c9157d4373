package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"strings"
)

// network is the part of an instance that lives outside its directory.
type network struct {
	Bridge string `json:"bridge"`
	Subnet string `json:"subnet"`
	// PortmapChains are the machine-wide chains of the portmap plugin that existed before this instance.
	PortmapChains []string `json:"portmapChains,omitempty"`
}

// pickNetwork draws a bridge name and a /24 that no interface of the machine uses. Random rather than counted: parallel
// instances belong to processes that do not know each other.
func pickNetwork(ctx context.Context) (network, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return network{}, fmt.Errorf("cannot list the machine's addresses: %w", err)
	}
	for range 100 {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(192 + rand.IntN(60)), byte(rand.IntN(256)), 0}), 24)
		if overlapsAny(prefix, addrs) {
			continue
		}
		n := network{Bridge: fmt.Sprintf("ndl%08x", rand.Uint32()), Subnet: prefix.String()}
		n.PortmapChains = portmapChains(ctx)
		return n, nil
	}
	return network{}, errors.New("cannot find a free subnet in 10.192.0.0 to 10.251.255.0")
}

func overlapsAny(prefix netip.Prefix, addrs []net.Addr) bool {
	for _, addr := range addrs {
		other, err := netip.ParsePrefix(addr.String())
		if err == nil && other.Addr().Is4() && prefix.Overlaps(other.Masked()) {
			return true
		}
	}
	return false
}

// remove deletes the bridge and every packet filter rule that carries the network's name.
func (n network) remove(ctx context.Context) error {
	var failures []error
	if _, err := net.InterfaceByName(n.Bridge); err == nil {
		if out, err := exec.CommandContext(ctx, "ip", "link", "del", n.Bridge).CombinedOutput(); err != nil {
			failures = append(failures, fmt.Errorf("cannot delete the bridge %s: %w: %s", n.Bridge, err, out))
		}
	}
	failures = append(failures, n.removeRules(ctx))
	return errors.Join(failures...)
}

// removeRules handles what the plugins' own DEL left, for example after a killed daemon. Each of their per-container
// chains is reached by a rule whose comment names the network.
func (n network) removeRules(ctx context.Context) error {
	rules, err := natRules(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, rule := range rules {
		if !strings.Contains(rule, `name: \"`+n.Bridge+`\"`) {
			continue
		}
		fields := splitRule(rule)
		if len(fields) < 2 || fields[0] != "-A" {
			continue
		}
		fields[0] = "-D"
		failures = append(failures, iptables(ctx, fields...))
		if target := jumpTarget(fields); strings.HasPrefix(target, "CNI-") && !isPortmapChain(target) {
			failures = append(failures, iptables(ctx, "-F", target), iptables(ctx, "-X", target))
		}
	}
	return errors.Join(append(failures, n.removePortmapChains(ctx))...)
}

// removePortmapChains deletes the plugin's shared chains if this instance brought them and no rule is left in the one
// that dispatches. Another instance's next sandbox makes them again.
func (n network) removePortmapChains(ctx context.Context) error {
	present := portmapChains(ctx)
	if len(n.PortmapChains) > 0 || len(present) == 0 {
		return nil
	}
	rules, err := natRules(ctx)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if strings.HasPrefix(rule, "-A CNI-HOSTPORT-DNAT ") {
			return nil
		}
	}
	var failures []error
	for _, rule := range rules {
		fields := splitRule(rule)
		if fields[0] == "-A" && isPortmapChain(jumpTarget(fields)) {
			fields[0] = "-D"
			failures = append(failures, iptables(ctx, fields...))
		}
	}
	for _, chain := range present {
		failures = append(failures, iptables(ctx, "-F", chain), iptables(ctx, "-X", chain))
	}
	return errors.Join(failures...)
}

func isPortmapChain(chain string) bool { return strings.HasPrefix(chain, "CNI-HOSTPORT-") }

func portmapChains(ctx context.Context) []string {
	rules, err := natRules(ctx)
	if err != nil {
		return nil
	}
	var chains []string
	for _, rule := range rules {
		if chain, found := strings.CutPrefix(rule, "-N "); found && isPortmapChain(chain) {
			chains = append(chains, chain)
		}
	}
	return chains
}

func natRules(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "iptables", "-w", "-t", "nat", "-S").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packet filter's rules: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

func iptables(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "iptables", append([]string{"-w", "-t", "nat"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run iptables %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func jumpTarget(fields []string) string {
	for i, field := range fields {
		if (field == "-j" || field == "-g") && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return ""
}

// splitRule undoes the quoting of iptables -S: blanks separate, double quotes group, a backslash keeps the next byte.
func splitRule(rule string) []string {
	var fields []string
	var field strings.Builder
	quoted, pending := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '\\' && i+1 < len(rule):
			i++
			field.WriteByte(rule[i])
			pending = true
		case c == '"':
			quoted = !quoted
			pending = true
		case c == ' ' && !quoted:
			if pending {
				fields = append(fields, field.String())
			}
			field.Reset()
			pending = false
		default:
			field.WriteByte(c)
			pending = true
		}
	}
	if pending {
		fields = append(fields, field.String())
	}
	return fields
}
