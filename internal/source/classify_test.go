package source

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

func userPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "i", Image: "busybox:1"}},
			Containers: []corev1.Container{{Name: "c", Image: "busybox:1", Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
			}}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func TestClassify(t *testing.T) {
	image := func(i string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = i }
	}
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "x"}}
	withDebug := func(p *corev1.Pod) { p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, debug) }
	tests := []struct {
		name string
		old  *corev1.Pod
		edit func(*corev1.Pod)
		want Class
	}{
		{"nothing", nil, func(*corev1.Pod) {}, None},
		{"an explicit default", nil, func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyAlways
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
			p.Spec.EnableServiceLinks = new(true)
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1024Mi")
		}, None},
		{"another file", nil, func(p *corev1.Pod) {
			p.Annotations = map[string]string{pod.OriginAnnotation: "/b", "kubernetes.io/config.seen": "now"}
		}, None},
		{"label", nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, Metadata},
		{"annotation", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, Metadata},
		{"deadline", nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3)) }, Metadata},
		{"toleration", nil, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }, Metadata},
		{"ephemeral added", nil, withDebug, Metadata},
		{"ephemeral removed", userPod(withDebug), func(*corev1.Pod) {}, Replace},
		{"image", nil, image("busybox:2"), Swap},
		{"image, and with it the default pull policy", nil, image("busybox:latest"), Swap},
		{"image of an init container", nil, func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "x" }, Swap},
		{"image and label", nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"}; p.Spec.Containers[0].Image = "x" }, Swap},
		{"pull policy", nil, func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever }, Replace},
		{"cpu", nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		}, Resize},
		{"cpu and image", nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "x"
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
		}, Resize},
		{"the same cpu in another notation", nil, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("1000m")
		}, None},
		{"other QoS class", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, Replace},
		{"other resource", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["x/y"] = resource.MustParse("1") }, Replace},
		{"command", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, Replace},
		{"another container", nil, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "e", Image: "f"})
		}, Replace},
		{"renamed container", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "z" }, Replace},
		{"grace", nil, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, Replace},
		{"name", nil, func(p *corev1.Pod) { p.Name = "q" }, Replace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, after := tt.old, userPod(tt.edit)
			if before == nil {
				before = userPod()
			}
			kept := before.DeepCopy()
			require.Equal(t, tt.want, Classify(before, after))
			require.Equal(t, kept, before, "the inputs are not changed")
		})
	}
}

func TestClassText(t *testing.T) {
	for c, want := range map[Class]string{None: "none", Metadata: "metadata", Swap: "swap", Resize: "resize", Replace: "replace", 99: "unknown"} {
		require.Equal(t, want, c.String())
	}
}

func TestApply(t *testing.T) {
	old := Apply(nil, userPod(), "u1")
	require.Equal(t, types.UID("u1"), old.UID)
	require.Equal(t, corev1.RestartPolicyAlways, old.Spec.RestartPolicy)
	old.CreationTimestamp = metav1.Unix(7, 0)
	old.Spec.NodeName = "here"
	next := Apply(old, userPod(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), old.UID)
	require.Equal(t, old.CreationTimestamp, next.CreationTimestamp)
	require.Equal(t, "here", next.Spec.NodeName)
	require.Equal(t, "b", next.Labels["a"])
}

// CFG-2, CFG-3, CFG-4.
func TestDiff(t *testing.T) {
	make1 := func(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := userPod(edits...)
		p.Name = name
		return p
	}
	uid := func(u types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = u } }
	now := metav1.Unix(1, 0)
	before := []*corev1.Pod{
		make1("same"), make1("gone"), make1("label"), make1("dying"), make1("status"), make1("reborn", uid("1")), make1("moved"),
	}
	after := []*corev1.Pod{
		make1("same"), make1("new"),
		make1("label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }),
		make1("dying", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		make1("status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		make1("reborn", uid("2")),
		make1("moved", func(p *corev1.Pod) { p.Annotations = map[string]string{pod.OriginAnnotation: "/x"} }),
		make1("new"),
	}
	var got []string
	for _, c := range Diff(before, after) {
		for _, p := range c.Pods {
			got = append(got, string(c.Op)+" "+p.Name+string(p.UID))
		}
	}
	require.Equal(t, []string{"REMOVE gone", "REMOVE reborn1", "ADD new", "ADD reborn2", "UPDATE label", "DELETE dying", "RECONCILE status"}, got)
	require.Empty(t, Diff(after, after))
}
