package convert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

// TestIdentityComesBack: whatever a pod is called, the labels and annotations
// that it is given say it again (TRM-13).
func TestIdentityComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9.-]{0,80}[a-z]`)
		want := pod.Identity{
			UID: types.UID(rapid.StringMatching(`[0-9a-f-]{1,40}`).Draw(t, "uid")),
			Key: pod.Key{Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "name")}, Spec: "v1-abc",
			GraceSeconds: rapid.Int64Range(0, 1<<40).Draw(t, "grace"),
			Source:       rapid.SampledFrom([]string{"", "file", "http"}).Draw(t, "source"),
			Origin:       rapid.String().Draw(t, "origin"),
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: want.Key.Namespace, Name: want.Key.Name, UID: want.UID,
			Labels:      rapid.MapOf(rapid.SampledFrom([]string{LabelPodUID, LabelOwned, LabelPodName, "x"}), rapid.String()).Draw(t, "labels"),
			Annotations: map[string]string{pod.SourceAnnotation: want.Source, pod.OriginAnnotation: want.Origin, AnnotationSpecHash: "forged"},
		}}
		p.Spec.TerminationGracePeriodSeconds = &want.GraceSeconds
		require.Equal(t, want, Identity(sandboxLabels(p), sandboxAnnotations(p, want.Spec)))
		uid, ok := Owned(sandboxLabels(p))
		require.True(t, ok)
		require.Equal(t, want.UID, uid)
	})
}

func TestOwned(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"nothing":         {nil, false},
		"another agent's": {map[string]string{LabelPodUID: "u", LabelPodName: "n"}, false},
		"no uid":          {map[string]string{LabelOwned: "true"}, false},
		"not true":        {map[string]string{LabelOwned: "yes", LabelPodUID: "u"}, false},
		"ours":            {map[string]string{LabelOwned: "true", LabelPodUID: "u"}, true},
	} {
		_, got := Owned(test.labels)
		require.Equal(t, test.want, got, name)
	}
}

func TestSandboxDetails(t *testing.T) {
	listed := Sandbox(&runtimeapi.PodSandbox{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 3}, CreatedAt: 1})
	require.Equal(t, pod.Sandbox{
		ID: "s", Attempt: 3, Ready: true, CreatedAt: time.Unix(0, 1).UTC(), Identity: pod.Identity{GraceSeconds: 30},
	}, listed)
	status := &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{
		Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "nonsense"}, {Ip: "fd00::1"}},
	}}
	require.Equal(t, []string{"10.0.0.1", "fd00::1"}, SandboxDetails(listed, status).IPs, "SB-10")
	status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	require.Empty(t, SandboxDetails(listed, status).IPs)
	status = &runtimeapi.PodSandboxStatus{
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "192.0.2.1"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	got := SandboxDetails(listed, status)
	require.True(t, got.HostNetwork)
	require.Empty(t, got.IPs)
}

// TestQuickContainer: nothing ends before it started, whatever was noted first.
func TestQuickContainer(t *testing.T) {
	got := ContainerDetails(pod.Container{}, &runtimeapi.ContainerStatus{StartedAt: 20, FinishedAt: 10})
	require.Equal(t, time.Unix(0, 10).UTC(), got.StartedAt)
	require.Equal(t, got.StartedAt, got.FinishedAt)
	got = ContainerDetails(pod.Container{}, &runtimeapi.ContainerStatus{StartedAt: 20})
	require.Equal(t, time.Unix(0, 20).UTC(), got.StartedAt)
	require.True(t, got.FinishedAt.IsZero())
}

func TestEffectiveResources(t *testing.T) {
	// What a container was given comes back as what it asked for.
	for _, milli := range []int64{10, 100, 250, 1000, 1500, 64000} {
		given := linuxResources(
			corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
			corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(2*milli, resource.DecimalSI),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			})
		got := effectiveResources(given)
		require.Equal(t, milli, got.Requests.Cpu().MilliValue())
		require.Equal(t, 2*milli, got.Limits.Cpu().MilliValue())
		require.EqualValues(t, 64<<20, got.Limits.Memory().Value())
	}
	require.Nil(t, effectiveResources(nil))
	require.Equal(t, &corev1.ResourceRequirements{}, effectiveResources(&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: -1}))
}

// FuzzDecode: decoding is total, whoever wrote the labels.
func FuzzDecode(f *testing.F) {
	f.Add("true", "uid", "30", "normal", int32(1), int64(1), uint32(1), "10.0.0.1", int64(1024), int64(100000))
	f.Add("", "", "-9223372036854775808", "x", int32(-1), int64(-1), uint32(0), "::%eth0", int64(1<<62), int64(-1))
	f.Fuzz(func(t *testing.T, owned, uid, grace, kind string, state int32, at int64, attempt uint32, ip string, shares, period int64) {
		labels := map[string]string{LabelOwned: owned, LabelPodUID: uid}
		annotations := map[string]string{AnnotationPodGracePeriod: grace, AnnotationContainerKind: kind}
		if id := Identity(labels, annotations); id.GraceSeconds < 0 {
			t.Fatalf("negative grace %d", id.GraceSeconds)
		}
		SandboxDetails(Sandbox(&runtimeapi.PodSandbox{
			State: runtimeapi.PodSandboxState(state), CreatedAt: at, Labels: labels, Annotations: annotations,
			Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt},
		}), &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState(state), Network: &runtimeapi.PodSandboxNetworkStatus{Ip: ip}})
		SandboxDetails(Sandbox(nil), nil)
		ContainerDetails(Container(nil), nil)
		got := ContainerDetails(Container(&runtimeapi.Container{
			State: runtimeapi.ContainerState(state), CreatedAt: at, Labels: labels, Annotations: annotations,
		}), &runtimeapi.ContainerStatus{
			State: runtimeapi.ContainerState(state), StartedAt: at, FinishedAt: at,
			Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
				CpuShares: shares, CpuQuota: shares, CpuPeriod: period, MemoryLimitInBytes: shares,
			}},
		})
		if got.Resources.Limits.Cpu().Sign() < 0 || got.Resources.Requests.Cpu().Sign() < 0 {
			t.Fatalf("negative resources %v", got.Resources)
		}
	})
}
