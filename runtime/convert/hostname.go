package convert

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodelet.dev/nodelet/internal/pod"
)

// maxHostname is the longest name that the kernel takes.
const maxHostname = 64

// Hostname returns the host name and the domain of a pod (HN-1, HN-2). The
// domain is empty when the pod has none.
func Hostname(p *corev1.Pod, clusterDomain string) (hostname, domain string, err error) {
	spec := &p.Spec
	if spec.HostnameOverride != nil && !spec.HostNetwork {
		name := *spec.HostnameOverride
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return "", "", invalidHostname(p, "spec.hostnameOverride", name, problems)
		}
		if len(name) > maxHostname {
			return "", "", invalidHostname(p, "spec.hostnameOverride", name, []string{"longer than 64 characters"})
		}
		return name, "", nil
	}
	hostname = spec.Hostname
	if hostname == "" {
		hostname = truncate(p.Name)
	} else if problems := validation.IsDNS1123Label(hostname); len(problems) > 0 {
		return "", "", invalidHostname(p, "spec.hostname", hostname, problems)
	}
	if spec.Subdomain != "" {
		if problems := validation.IsDNS1123Label(spec.Subdomain); len(problems) > 0 {
			return "", "", invalidHostname(p, "spec.subdomain", spec.Subdomain, problems)
		}
		domain = strings.TrimSuffix(strings.Join([]string{spec.Subdomain, p.Namespace, "svc", clusterDomain}, "."), ".")
	}
	return hostname, domain, nil
}

// sandboxHostname is what the kernel shows inside the pod: nothing for the host
// network, whose name is the node's (SB-2), the full name where the pod asks
// for it (HN-3).
func sandboxHostname(p *corev1.Pod, clusterDomain string) (string, error) {
	hostname, domain, err := Hostname(p, clusterDomain)
	if err != nil || p.Spec.HostNetwork {
		return "", err
	}
	if p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || domain == "" {
		return hostname, nil
	}
	full := hostname + "." + domain
	if len(full) > maxHostname {
		return "", invalidHostname(p, "spec.setHostnameAsFQDN", full, []string{"longer than 64 characters"})
	}
	return full, nil
}

func truncate(name string) string {
	if len(name) > validation.DNS1123LabelMaxLength {
		name = name[:validation.DNS1123LabelMaxLength]
	}
	return strings.TrimRight(name, "-.")
}

func invalidHostname(p *corev1.Pod, field, name string, problems []string) error {
	return pod.Errorf(pod.ClassInvalid, ReasonSandboxConfig, "cannot name the host of pod %s: %s: %q: %s",
		pod.KeyOf(p), field, name, strings.Join(problems, "; "))
}
