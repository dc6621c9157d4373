package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

func podNamed(name string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u"}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example/main:1"}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-b"
	for _, test := range []struct {
		name             string
		pod              *corev1.Pod
		hostname, domain string
		kernel           string
		err              string
	}{
		{"HN-1 pod name", podNamed("web", nil), "web", "", "web", ""},
		{"HN-1 cut and trimmed", podNamed(long, nil), strings.Repeat("a", 62), "", strings.Repeat("a", 62), ""},
		{"HN-1 own", podNamed("web", func(s *corev1.PodSpec) { s.Hostname = "box" }), "box", "", "box", ""},
		{"HN-1 invalid", podNamed("web", func(s *corev1.PodSpec) { s.Hostname = "Box" }), "", "", "", "spec.hostname"},
		{"HN-1 override", podNamed("web", func(s *corev1.PodSpec) {
			s.Hostname, s.Subdomain, s.HostnameOverride = "box", "sub", new("a.b.c")
		}), "a.b.c", "", "a.b.c", ""},
		{"HN-1 override invalid", podNamed("web", func(s *corev1.PodSpec) { s.HostnameOverride = new("a..b") }), "", "", "", "spec.hostnameOverride"},
		{"HN-2", podNamed("web", func(s *corev1.PodSpec) { s.Subdomain = "sub" }), "web", "sub.shop.svc.cluster.local", "web", ""},
		{"HN-2 invalid", podNamed("web", func(s *corev1.PodSpec) { s.Subdomain = "a.b" }), "", "", "", "spec.subdomain"},
		{"HN-3", podNamed("web", func(s *corev1.PodSpec) {
			s.Subdomain, s.SetHostnameAsFQDN = "sub", new(true)
		}), "web", "sub.shop.svc.cluster.local", "web.sub.shop.svc.cluster.local", ""},
		{"HN-3 without domain", podNamed("web", func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = new(true) }), "web", "", "web", ""},
		{"HN-3 too long", podNamed("web", func(s *corev1.PodSpec) {
			s.Hostname, s.Subdomain, s.SetHostnameAsFQDN = strings.Repeat("h", 40), "sub", new(true)
		}), strings.Repeat("h", 40), "sub.shop.svc.cluster.local", "", "spec.setHostnameAsFQDN"},
		{"SB-2 host network", podNamed("web", func(s *corev1.PodSpec) { s.HostNetwork = true }), "web", "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			hostname, domain, err := Hostname(test.pod, "cluster.local")
			require.Equal(t, test.hostname, hostname)
			require.Equal(t, test.domain, domain)
			kernel, kernelErr := sandboxHostname(test.pod, "cluster.local")
			if test.err != "" {
				require.ErrorContains(t, kernelErr, test.err)
				require.Equal(t, pod.ClassInvalid, pod.ClassOf(kernelErr))
				return
			}
			require.NoError(t, err)
			require.NoError(t, kernelErr)
			require.Equal(t, test.kernel, kernel)
		})
	}
}

// TestHostnameIsValid: every pod that has a valid name has a valid host name.
func TestHostnameIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,90}[a-z0-9])?`).Draw(t, "name")
		hostname, _, err := Hostname(podNamed(name, nil), "")
		require.NoError(t, err)
		require.Empty(t, validation.IsDNS1123Label(hostname))
	})
}

func TestDNS(t *testing.T) {
	none := testNode()
	none.ClusterDNS = nil
	bare := testNode()
	bare.ResolvConf = NoResolvConf
	host := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"corp.example", "example"}, Options: []string{"timeout:2", "rotate"}}
	cluster := &runtimeapi.DNSConfig{
		Servers: []string{"10.96.0.10"}, Options: []string{"ndots:5"},
		Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example", "example"},
	}
	policy := func(p corev1.DNSPolicy, hostNetwork bool) *corev1.Pod {
		return podNamed("web", func(s *corev1.PodSpec) { s.DNSPolicy, s.HostNetwork = p, hostNetwork })
	}
	for _, test := range []struct {
		name   string
		pod    *corev1.Pod
		node   Node
		want   *runtimeapi.DNSConfig
		reason string
	}{
		{"DNS-1", policy(corev1.DNSClusterFirst, false), testNode(), cluster, ""},
		{"DNS-1 by default", policy("", false), testNode(), cluster, ""},
		{"DNS-2", policy(corev1.DNSClusterFirst, false), none, host, ReasonMissingClusterDNS},
		{"DNS-3", policy(corev1.DNSClusterFirst, true), testNode(), host, ""},
		{"DNS-3 says nothing of what it does not need", policy(corev1.DNSClusterFirst, true), none, host, ""},
		{"DNS-3 with host network", policy(corev1.DNSClusterFirstWithHostNet, true), testNode(), cluster, ""},
		{"DNS-4", policy(corev1.DNSDefault, false), testNode(), host, ""},
		{"DNS-4 no file", policy(corev1.DNSDefault, false), bare, &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}, Searches: []string{"."}}, ""},
		{"DNS-5", policy(corev1.DNSNone, false), testNode(), &runtimeapi.DNSConfig{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, warnings, err := DNS(test.pod, test.node)
			require.NoError(t, err)
			require.Equal(t, test.want.String(), got.String())
			var reasons []string
			for _, w := range warnings {
				reasons = append(reasons, w.Reason)
			}
			require.Equal(t, test.reason, strings.Join(reasons, " "))
		})
	}
	_, _, err := DNS(policy("Sometimes", false), testNode())
	require.ErrorContains(t, err, "spec.dnsPolicy")
}

// TestDNSLimits: DNS-7. Whatever is asked for, what is left obeys the limits, is
// in the order that was asked for, and a cut is reported.
func TestDNSLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		searches := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,260}`), 0, 60, rapid.ID[string]).Draw(t, "searches")
		servers := rapid.SliceOfNDistinct(rapid.StringMatching(`10\.0\.0\.[1-9]`), 0, 6, rapid.ID[string]).Draw(t, "servers")
		p := podNamed("web", func(s *corev1.PodSpec) {
			s.DNSPolicy, s.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: servers, Searches: searches}
		})
		got, warnings, err := DNS(p, testNode())
		require.NoError(t, err)
		require.LessOrEqual(t, len(got.Servers), 3)
		require.LessOrEqual(t, len(got.Searches), 32)
		require.LessOrEqual(t, len(strings.Join(got.Searches, " ")), 2048)
		cut := len(got.Servers) < len(servers) || len(got.Searches) < len(searches)
		require.Equal(t, cut, len(warnings) == 1)
		rest := searches
		for _, s := range got.Searches {
			at := slices.Index(rest, s)
			require.GreaterOrEqual(t, at, 0)
			rest = rest[at+1:]
		}
	})
}

// TestEnvOrder: Q-7. Each name appears once, where it is declared last, and no
// value depends on what comes after it.
func TestEnvOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var env []corev1.EnvVar
		for i := range rapid.IntRange(0, 12).Draw(t, "variables") {
			name := rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(t, "name")
			from := rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(t, "from")
			env = append(env, corev1.EnvVar{Name: name, Value: fmt.Sprintf("%d<$(%s)>", i, from)})
		}
		p := podNamed("web", func(s *corev1.PodSpec) { s.Containers[0].Env = env })
		resolve := func(n int) []*runtimeapi.KeyValue {
			c := p.Spec.Containers[0]
			c.Env = env[:n]
			got, err := Env(ContainerInput{Pod: p, Container: &c, Node: testNode()})
			require.NoError(t, err)
			return got
		}
		all := resolve(len(env))
		at := -1
		for _, kv := range all {
			last := -1
			for i := range env {
				if env[i].Name == kv.GetKey() {
					last = i
				}
			}
			require.Greater(t, last, at, "declaration order")
			at = last
			prefix := resolve(last + 1)
			require.Equal(t, string(prefix[len(prefix)-1].GetValue()), string(kv.GetValue()))
		}
		names := map[string]bool{}
		for i := range env {
			names[env[i].Name] = true
		}
		require.Len(t, all, len(names))
	})
}

func TestRunAsNonRoot(t *testing.T) {
	for _, test := range []struct {
		name  string
		user  *int64
		image ImageUser
		err   string
		uid   int64
		as    string
	}{
		{"user wins", new(int64(7)), ImageUser{}, "", 7, ""},
		{"user root", new(int64(0)), ImageUser{UID: new(int64(9))}, "runAsUser", 0, ""},
		{"image number", nil, ImageUser{UID: new(int64(9))}, "", 9, ""},
		{"image root", nil, ImageUser{UID: new(int64(0))}, "runs as root", 0, ""},
		{"image name", nil, ImageUser{Name: "web"}, "cannot be told from root", 0, ""},
		{"image silent", nil, ImageUser{}, "runs as root", 0, ""},
	} {
		t.Run("SEC-6 "+test.name, func(t *testing.T) {
			p := podNamed("web", func(s *corev1.PodSpec) {
				s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: test.user}
			})
			in := ContainerInput{Pod: p, Container: &p.Spec.Containers[0], ImageUser: test.image}
			got, err := containerSecurity(in)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.Equal(t, ReasonContainerConfig, pod.ReasonOf(err, ""))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.uid, got.GetRunAsUser().GetValue())
		})
	}
	p := podNamed("web", nil)
	got, err := containerSecurity(ContainerInput{Pod: p, Container: &p.Spec.Containers[0], ImageUser: ImageUser{Name: "web"}})
	require.NoError(t, err)
	require.Equal(t, "web", got.GetRunAsUsername())
	require.Nil(t, got.GetRunAsUser())
}

func TestShares(t *testing.T) {
	for milli, want := range map[int64]int64{-1: 2, 0: 2, 1: 2, 2: 2, 3: 3, 1000: 1024, 256000: 262144, 1 << 62: 262144} {
		require.Equal(t, want, Shares(milli), "RES-3 %d", milli)
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 11: 1100, 1000: 100000, 1500: 150000} {
		require.Equal(t, want, Quota(milli), "RES-4 %d", milli)
	}
	require.Positive(t, Quota(1<<62))
}

// TestOOMScores: RES-7. Classes never overlap, and a sidecar never goes before
// the containers that it serves.
func TestOOMScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := func(label string) corev1.ResourceRequirements {
			mib := rapid.Int64Range(0, 1<<14).Draw(t, label)
			return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(mib<<20, resource.BinarySI)}}
		}
		always := corev1.ContainerRestartPolicyAlways
		p := podNamed("web", func(s *corev1.PodSpec) {
			s.Containers[0].Resources = request("main")
			s.Containers = append(s.Containers, corev1.Container{Name: "other", Resources: request("other")})
			s.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: &always, Resources: request("proxy")}}
		})
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")} // burstable for sure
		node := testNode()
		score := func(name string) int64 {
			c, kind := pod.Find(&p.Spec, name)
			return OOMScoreAdj(p, c, kind, node)
		}
		for _, name := range []string{"main", "other", "proxy"} {
			require.GreaterOrEqual(t, score(name), int64(3))
			require.LessOrEqual(t, score(name), int64(999))
		}
		require.LessOrEqual(t, score("proxy"), min(score("main"), score("other")))
		node.MinOOMScoreAdj = 500
		require.GreaterOrEqual(t, score("main"), int64(500), "raised to what the machine allows")
	})
}

func TestParseResolvConf(t *testing.T) {
	got := ParseResolvConf("; comment\nnameserver 1.1.1.1 # trailing\nnameserver 1.1.1.1\nnameserver\nsearch a\ndomain b.\nsearch . c.\noptions x\noptions y:1 x\nnonsense z")
	require.Equal(t, (&runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{".", "c"}, Options: []string{"x", "y:1"}}).String(), got.String())
}

func TestBidirectionalNeedsPrivileged(t *testing.T) {
	p := podNamed("web", nil)
	in := ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Mounts: []pod.Mount{
		{ContainerPath: "/a", HostPath: "/a", Propagation: corev1.MountPropagationHostToContainer, RecursiveReadOnly: true, ReadOnly: true},
		{ContainerPath: "/b", HostPath: "/b", Propagation: corev1.MountPropagationBidirectional},
	}}
	_, err := ContainerConfig(in)
	require.ErrorContains(t, err, "spec.containers[0].volumeMounts") // VOL-25
	in.Container.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	got, err := ContainerConfig(in)
	require.NoError(t, err)
	require.Equal(t, runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, got.GetMounts()[0].GetPropagation())
	require.True(t, got.GetMounts()[0].GetRecursiveReadOnly())
	require.Equal(t, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, got.GetMounts()[1].GetPropagation())
}
