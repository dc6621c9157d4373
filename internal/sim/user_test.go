package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nodelet.dev/nodelet/internal/pod"
)

// user is who writes manifests. What is wanted is on a disk of its own, which
// outlives everything.
type user struct {
	w      *world
	wanted map[pod.Key]*manifest
	graces map[pod.Key]int64 // asked for with a deletion
	count  int
}

type manifest struct {
	pod   *corev1.Pod
	since moment
}

// instantiate gives a manifest a UID.
func (u *user) instantiate(p *corev1.Pod) *corev1.Pod {
	u.count++
	out := p.DeepCopy()
	out.UID = types.UID(fmt.Sprintf("u%d", u.count))
	return out
}

// tell delivers the manifests to the agent, soon.
func (u *user) tell() {
	if a := u.w.agent; a != nil {
		u.w.after(u.w.between(time.Millisecond, 300*time.Millisecond), a.deliver)
	}
}

func (u *user) want(p *corev1.Pod) {
	key := pod.KeyOf(p)
	delete(u.graces, key)
	u.wanted[key] = &manifest{pod: p, since: u.w.now}
	u.w.logf("user wants %s: %s", key, describe(p))
	u.tell()
}

func (u *user) remove(key pod.Key, grace *int64) {
	delete(u.wanted, key)
	if u.graces == nil {
		u.graces = map[pod.Key]int64{}
	}
	text := "its own grace"
	if grace != nil {
		u.graces[key] = *grace
		text = fmt.Sprintf("%d s of grace", *grace)
	}
	u.w.logf("user removes %s with %s", key, text)
	u.tell()
}

// edit changes a pod in place: another image, label, deadline or an ephemeral
// container; or in a way that needs another instance.
func (u *user) edit(key pod.Key) {
	p := u.wanted[key].pod.DeepCopy()
	w := u.w
	switch w.rng.IntN(6) {
	case 0:
		p.Labels = map[string]string{"edit": strconv.Itoa(w.rng.IntN(1000))}
	case 1, 2:
		c := &p.Spec.Containers[w.rng.IntN(len(p.Spec.Containers))]
		c.Image = u.image()
	case 3:
		if n := len(p.Spec.InitContainers); n > 0 {
			p.Spec.InitContainers[w.rng.IntN(n)].Image = u.image()
		}
	case 4:
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: fmt.Sprintf("debug%d", len(p.Spec.EphemeralContainers)), Image: u.image(), Args: []string{pick(w, []string{"5s:0", "forever", "9s:3"})},
			},
		})
	default:
		c := &p.Spec.Containers[0]
		c.Args = u.program()
	}
	u.want(p)
}

// heal replaces images that cannot be pulled.
func (u *user) heal() {
	for _, key := range sortedByKey(u.wanted) {
		p := u.wanted[key].pod.DeepCopy()
		changed := false
		visit(&p.Spec, func(_ *corev1.Container, image *string) {
			if strings.HasPrefix(*image, "bad") {
				*image, changed = "good-healed", true
			}
		})
		if changed {
			u.want(p)
		}
	}
}

func visit(spec *corev1.PodSpec, f func(c *corev1.Container, image *string)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], &spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], &spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		f((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), &spec.EphemeralContainers[i].Image)
	}
}

func (u *user) image() string {
	return pick(u.w, []string{"good-a", "good-b", "good-c", "slow-d", "slow-e", "flaky-f", "bad-g"})
}

func (u *user) program() []string {
	return pick(u.w, [][]string{
		{"forever"},
		{"forever"},
		{"forever~3s"},
		{"forever!"},
		{"forever~1s=0"},
		{"5s:0"},
		{"20s:1"},
		{"15s:3", "forever"},
		{"2s:1", "2s:0"},
		{"9s:1", "60s:1", "1s:0"},
		{"4s:42", "forever"},
		{"700s:1"},
		{"30s:42"},
	})
}

// invent makes a random pod.
func (u *user) invent(name string) *corev1.Pod {
	w := u.w
	grace := pick(w, []int64{1, 5, 30})
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: pick(w, []corev1.RestartPolicy{
				corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
			}),
			TerminationGracePeriodSeconds: &grace,
			HostNetwork:                   w.chance(0.15),
		},
	}
	if w.chance(0.1) {
		deadline := 60 + w.rng.Int64N(600)
		p.Spec.ActiveDeadlineSeconds = &deadline
	}
	for i := range w.rng.IntN(4) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, u.initContainer(i))
	}
	for i := range 1 + w.rng.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, u.normalContainer(i))
	}
	return p
}

func (u *user) initContainer(i int) corev1.Container {
	w := u.w
	c := corev1.Container{Name: fmt.Sprintf("init%d", i), Image: u.image()}
	if !w.chance(0.4) {
		c.Args = pick(w, [][]string{{"3s:0"}, {"1s:0"}, {"2s:1", "2s:0"}, {"20s:0"}, {"1s:1", "1s:1", "3s:0"}, {"forever"}, {"1s:1"}})
		if c.Args[0] == "forever" && w.chance(0.8) {
			c.Args = []string{"4s:0"}
		}
		return c
	}
	c.Name = fmt.Sprintf("side%d", i)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	c.Args = pick(w, [][]string{{"forever~1s=0"}, {"30s:1", "forever"}, {"forever!"}, {"forever"}, {"60s:0"}})
	u.probes(&c)
	return c
}

func (u *user) normalContainer(i int) corev1.Container {
	w := u.w
	c := corev1.Container{Name: fmt.Sprintf("main%d", i), Image: u.image(), Args: u.program()}
	u.probes(&c)
	if !w.chance(0.3) {
		return c
	}
	policy := pick(w, []corev1.ContainerRestartPolicy{
		corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyAlways,
	})
	c.RestartPolicy = &policy
	if w.chance(0.7) {
		c.RestartPolicyRules = []corev1.ContainerRestartRule{
			rule(corev1.ContainerRestartRuleActionRestart, 3), rule(corev1.ContainerRestartRuleActionRestartAllContainers, 42),
		}
	}
	return c
}

func rule(action corev1.ContainerRestartRuleAction, code int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action: action,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
		},
	}
}

func (u *user) probes(c *corev1.Container) {
	probe := func() *corev1.Probe {
		p := &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
			TimeoutSeconds: 1, PeriodSeconds: 1 + u.w.rng.Int32N(10), SuccessThreshold: 1, FailureThreshold: 1 + u.w.rng.Int32N(3),
			InitialDelaySeconds: u.w.rng.Int32N(5),
		}
		if u.w.chance(0.5) {
			p.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}
		}
		return p
	}
	if u.w.chance(0.2) {
		c.StartupProbe = probe()
		c.StartupProbe.FailureThreshold += 5
	}
	if u.w.chance(0.2) {
		c.LivenessProbe = probe()
	}
	if u.w.chance(0.2) {
		c.ReadinessProbe = probe()
		c.ReadinessProbe.SuccessThreshold += u.w.rng.Int32N(2)
	}
}

// describe is a pod in one line.
func describe(p *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s grace=%d", p.Spec.RestartPolicy, *p.Spec.TerminationGracePeriodSeconds)
	if d := p.Spec.ActiveDeadlineSeconds; d != nil {
		fmt.Fprintf(&b, " deadline=%d", *d)
	}
	if p.Spec.HostNetwork {
		b.WriteString(" host-network")
	}
	visit(&p.Spec, func(c *corev1.Container, image *string) {
		fmt.Fprintf(&b, " %s(%s %s", c.Name, *image, strings.Join(c.Args, ","))
		if c.RestartPolicy != nil {
			fmt.Fprintf(&b, " %s", *c.RestartPolicy)
		}
		if len(c.RestartPolicyRules) > 0 {
			b.WriteString(" rules")
		}
		if c.StartupProbe != nil {
			b.WriteString(" startup")
		}
		b.WriteString(")")
	})
	return b.String()
}
