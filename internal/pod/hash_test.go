package pod_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nodelet.dev/nodelet/internal/pod"
)

// TestContainerHashNeverChanges holds INV-21. A value here may not be changed:
// it is written on containers that run. New rules get a new version instead.
func TestContainerHashNeverChanges(t *testing.T) {
	for _, c := range []struct{ name, image, hash string }{
		{"web", "nginx:1.27", "v1-6fe2fc857c56a20f"},
		{"web", "nginx:1.28", "v1-ff47eb853c8f018a"},
		{"db", "nginx:1.27", "v1-3b4d9b526fc15865"},
		{"x", "registry.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "v1-32fe8e944667c91a"},
		{"<&>", "ü\"\\", "v1-6fc3a952fbda9b1f"},
	} {
		require.Equal(t, c.hash, pod.ContainerHash(&corev1.Container{Name: c.name, Image: c.image}), "%s %s", c.name, c.image)
	}
}

// TestContainerHashCovers holds that nothing but name and image counts (CPA-18).
func TestContainerHashCovers(t *testing.T) {
	plain := corev1.Container{Name: "web", Image: "nginx:1.27"}
	full := plain
	full.Command, full.Args, full.WorkingDir = []string{"a"}, []string{"b"}, "/w"
	full.Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
	full.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	full.ImagePullPolicy, full.TerminationMessagePath = corev1.PullAlways, "/dev/termination-log"
	full.LivenessProbe = &corev1.Probe{PeriodSeconds: 3}
	require.Equal(t, pod.ContainerHash(&plain), pod.ContainerHash(&full))
}

func userPod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace = "shop", "default"
	p.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "migrate:1"}}
	p.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx:1.27", Command: []string{"run"}}}
	return p
}

// TestSpecHash holds which fields mean another pod (DESIGN section 6).
func TestSpecHash(t *testing.T) {
	require.Equal(t, "v1-0f85e4626ba37756", pod.SpecHash(userPod()), "it is written on sandboxes: see TestContainerHashNeverChanges")
	grace := int64(3)
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		same   bool
	}{
		"labels":      {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		"image":       {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" }, true},
		"init image":  {func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "migrate:2" }, true},
		"tolerations": {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}} }, true},
		"deadline":    {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &grace }, true},
		"resources": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}, true},
		"init resources": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}, true},
		"ephemeral":    {func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} }, true},
		"command":      {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"walk"} }, false},
		"env":          {func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} }, false},
		"host network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, false},
		"grace":        {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &grace }, false},
		"more":         {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := userPod()
			c.change(p)
			whole := p.DeepCopy()
			require.Equal(t, c.same, pod.SpecHash(p) == pod.SpecHash(userPod()))
			require.Equal(t, whole, p, "hashing changes nothing")
		})
	}
}

// TestSameHash holds that a hash of other rules, or none, is no difference.
func TestSameHash(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"v1-aa", "v1-aa", true},
		{"v1-aa", "v1-bb", false},
		{"v1-aa", "v2-bb", true},
		{"v2-aa", "v1-aa", true},
		{"", "v1-aa", true},
		{"v1-aa", "", true},
		{"", "", true},
		{"1f2e3d4c", "v1-aa", true}, // another agent's
		{"v1-a-b", "v1-a-c", false},
		{"v1", "v1-aa", true},
		{"v1-aa", "v1", true},
	} {
		require.Equal(t, c.same, pod.SameHash(c.a, c.b), "%q %q", c.a, c.b)
	}
}
