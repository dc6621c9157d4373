package convert

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	podHostsHeader  = "# Written by nodelet for this pod; it is written anew at each container start.\n"
	nodeHostsHeader = "# Copied by nodelet from the node's hosts file; it is written anew at each container start.\n"
	localNames      = "127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n"
)

// HostsFile returns the text of a pod's /etc/hosts: its own names for each of
// its addresses (HN-4), or the node's file on the host network (HN-5), and then
// the host aliases. A host name that is not valid is left out: such a pod gets
// no sandbox anyway.
func HostsFile(p *corev1.Pod, ips []string, nodeHosts, clusterDomain string) string {
	var b strings.Builder
	if p.Spec.HostNetwork {
		b.WriteString(nodeHostsHeader)
		b.WriteString(nodeHosts)
		if nodeHosts != "" && !strings.HasSuffix(nodeHosts, "\n") {
			b.WriteString("\n")
		}
	} else {
		b.WriteString(podHostsHeader)
		b.WriteString(localNames)
		b.WriteString(ownNames(p, ips, clusterDomain))
	}
	if len(p.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries of spec.hostAliases.\n")
		for _, alias := range p.Spec.HostAliases {
			b.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
		}
	}
	return b.String()
}

func ownNames(p *corev1.Pod, ips []string, clusterDomain string) string {
	hostname, domain, err := Hostname(p, clusterDomain)
	if err != nil {
		return ""
	}
	names := hostname
	if domain != "" {
		names = hostname + "." + domain + "\t" + hostname
	}
	var b strings.Builder
	for _, ip := range ips {
		b.WriteString(ip + "\t" + names + "\n")
	}
	return b.String()
}
