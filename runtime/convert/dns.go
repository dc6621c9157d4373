package convert

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Limits of the C library's resolver, as Kubernetes counts them (DNS-7).
const (
	maxNameservers    = 3
	maxSearches       = 32
	maxSearchesLength = 2048
	maxSearchLength   = 253
)

// Event reasons of DNS warnings.
const (
	ReasonMissingClusterDNS = "MissingClusterDNS"
	ReasonDNSConfigForming  = "DNSConfigForming"
)

// NoResolvConf is the resolver configuration of a node that was told to have
// none (DNS-4): containers must not fall back to something that leaks in.
const NoResolvConf = "nameserver 127.0.0.1\nsearch .\n"

// DNS returns the resolver configuration of a pod (DNS-1 to DNS-7), in
// declaration order, and what had to be left out of it.
func DNS(p *corev1.Pod, node Node) (*runtimeapi.DNSConfig, []Warning, error) {
	var warnings []Warning
	config := &runtimeapi.DNSConfig{}
	policy := p.Spec.DNSPolicy
	switch policy {
	case corev1.DNSNone:
	case corev1.DNSDefault:
		config = ParseResolvConf(node.ResolvConf)
	case corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, "":
		config = ParseResolvConf(node.ResolvConf)
		if p.Spec.HostNetwork && policy != corev1.DNSClusterFirstWithHostNet {
			break // DNS-3
		}
		if len(node.ClusterDNS) == 0 {
			warnings = append(warnings, Warning{ReasonMissingClusterDNS, fmt.Sprintf(
				"pod %s asks for the cluster's DNS, and none is configured on this node; it gets the node's instead", pod.KeyOf(p))})
			break // DNS-2
		}
		config = clusterFirst(p.Namespace, config.Searches, node)
	default:
		return nil, nil, pod.Errorf(pod.ClassInvalid, ReasonSandboxConfig,
			"cannot configure DNS of pod %s: spec.dnsPolicy: unknown policy %q", pod.KeyOf(p), policy)
	}
	merge(config, p.Spec.DNSConfig)
	if w, cut := cutToLimits(p, config); cut {
		warnings = append(warnings, w)
	}
	return config, warnings, nil
}

func clusterFirst(namespace string, hostSearches []string, node Node) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{Servers: slices.Clone(node.ClusterDNS), Options: []string{"ndots:5"}}
	if domain := node.ClusterDomain; domain != "" {
		config.Searches = []string{namespace + ".svc." + domain, "svc." + domain, domain}
	}
	config.Searches = appendNew(config.Searches, hostSearches)
	return config
}

// merge applies spec.dnsConfig (DNS-6).
func merge(config *runtimeapi.DNSConfig, own *corev1.PodDNSConfig) {
	if own == nil {
		return
	}
	config.Servers = appendNew(config.Servers, own.Nameservers)
	config.Searches = appendNew(config.Searches, own.Searches)
	for _, o := range own.Options {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		at := slices.IndexFunc(config.Options, func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		})
		if at >= 0 {
			config.Options[at] = text
		} else {
			config.Options = append(config.Options, text)
		}
	}
}

// cutToLimits drops what a resolver would not read (DNS-7).
func cutToLimits(p *corev1.Pod, config *runtimeapi.DNSConfig) (Warning, bool) {
	var dropped []string
	if len(config.Servers) > maxNameservers {
		dropped = append(dropped, "nameservers "+strings.Join(config.Servers[maxNameservers:], " "))
		config.Servers = config.Servers[:maxNameservers]
	}
	var searches, lost []string
	length := 0
	for _, s := range config.Searches {
		switch {
		case len(s) > maxSearchLength, len(searches) == maxSearches, length+len(s) > maxSearchesLength:
			lost = append(lost, s)
		default:
			searches = append(searches, s)
			length += len(s) + 1 // and the space before the next one
		}
	}
	config.Searches = searches
	if len(lost) > 0 {
		dropped = append(dropped, "searches "+strings.Join(lost, " "))
	}
	if len(dropped) == 0 {
		return Warning{}, false
	}
	return Warning{ReasonDNSConfigForming, fmt.Sprintf("DNS limits exceeded, left out of pod %s: %s",
		pod.KeyOf(p), strings.Join(dropped, "; "))}, true
}

// ParseResolvConf reads a resolver configuration. As the C library does, the
// last search or domain line counts; unknown lines are skipped.
func ParseResolvConf(text string) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(text) {
		if at := strings.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			config.Servers = appendNew(config.Servers, fields[1:2])
		case "search", "domain":
			config.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				config.Searches = appendNew(config.Searches, []string{s})
			}
		case "options":
			config.Options = appendNew(config.Options, fields[1:])
		}
	}
	return config
}

func appendNew(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
