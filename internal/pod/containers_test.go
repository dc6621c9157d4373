package pod_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

func policy(p corev1.ContainerRestartPolicy) *corev1.ContainerRestartPolicy {
	if p == "" {
		return nil
	}
	return &p
}

func rule(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

const (
	restart    = corev1.ContainerRestartRuleActionRestart
	restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
	in         = corev1.ContainerRestartRuleOnExitCodesOpIn
	notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn
)

// TestRestartsAfter holds RR-1 and RR-2.
func TestRestartsAfter(t *testing.T) {
	for _, c := range []struct {
		name      string
		pod       corev1.RestartPolicy
		container corev1.ContainerRestartPolicy
		rules     []corev1.ContainerRestartRule
		again     map[int32]bool // by exit code
	}{
		{"the pod's Always", "Always", "", nil, map[int32]bool{0: true, 1: true}},
		{"the pod's OnFailure", "OnFailure", "", nil, map[int32]bool{0: false, 1: true, -1: true}},
		{"the pod's Never", "Never", "", nil, map[int32]bool{0: false, 1: false}},
		{"not defaulted", "", "", nil, map[int32]bool{0: true, 1: true}},
		{"its own Never", "Always", "Never", nil, map[int32]bool{0: false, 1: false}},
		{"its own OnFailure", "Never", "OnFailure", nil, map[int32]bool{0: false, 1: true}},
		{"its own Always", "Never", "Always", nil, map[int32]bool{0: true, 1: true}},
		{
			"a rule with In", "Always", "Never",
			[]corev1.ContainerRestartRule{rule(restart, in, 3, 4)},
			map[int32]bool{0: false, 3: true, 4: true, 5: false},
		},
		{
			"a rule with NotIn", "Always", "Never",
			[]corev1.ContainerRestartRule{rule(restart, notIn, 0, 4)},
			map[int32]bool{0: false, 3: true, 4: false},
		},
		{
			"no rule matches: its own policy", "Never", "OnFailure",
			[]corev1.ContainerRestartRule{rule(restart, in, 0)},
			map[int32]bool{0: true, 1: true},
		},
		{
			"a restart of all is a restart", "Never", "Never",
			[]corev1.ContainerRestartRule{rule(restartAll, in, 42)},
			map[int32]bool{42: true, 41: false},
		},
		{
			"rules without an own policy do not count", "Never", "",
			[]corev1.ContainerRestartRule{rule(restart, in, 3)},
			map[int32]bool{3: false},
		},
		{
			"an action of a later version is no restart", "Always", "Always",
			[]corev1.ContainerRestartRule{rule("Hibernate", in, 3)},
			map[int32]bool{3: false, 4: true},
		},
		{
			"a rule without exit codes matches nothing", "Always", "Never",
			[]corev1.ContainerRestartRule{{Action: restart}},
			map[int32]bool{0: false, 1: false},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := &corev1.PodSpec{RestartPolicy: c.pod}
			cont := &corev1.Container{RestartPolicy: policy(c.container), RestartPolicyRules: c.rules}
			for code, again := range c.again {
				require.Equal(t, again, pod.RestartsAfter(spec, cont, code), "exit code %d", code)
			}
		})
	}
}

// TestMatchRule holds that the first match decides (RR-1).
func TestMatchRule(t *testing.T) {
	c := &corev1.Container{RestartPolicy: policy("Never"), RestartPolicyRules: []corev1.ContainerRestartRule{
		rule(restart, in, 1, 2), rule(restartAll, in, 2, 3), rule(restart, notIn, 0, 1, 2, 3),
	}}
	for code, want := range map[int32]corev1.ContainerRestartRuleAction{1: restart, 2: restart, 3: restartAll, 9: restart, 0: ""} {
		action, matched := pod.MatchRule(c, code)
		require.Equal(t, want, action, "exit code %d", code)
		require.Equal(t, want != "", matched)
	}
}

func everyKind() *corev1.PodSpec {
	return &corev1.PodSpec{
		RestartPolicy:       corev1.RestartPolicyNever,
		InitContainers:      []corev1.Container{{Name: "seed"}, {Name: "proxy", RestartPolicy: policy("Always")}, {Name: "retry", RestartPolicy: policy("OnFailure")}},
		Containers:          []corev1.Container{{Name: "web", RestartPolicy: policy("Always")}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "tools:1"}}},
	}
}

func TestFind(t *testing.T) {
	spec := everyKind()
	for name, kind := range map[string]pod.Kind{
		"seed": pod.KindInit, "proxy": pod.KindSidecar, "retry": pod.KindInit, "web": pod.KindNormal, "debug": pod.KindEphemeral,
	} {
		c, k := pod.Find(spec, name)
		require.Equal(t, name, c.Name)
		require.Equal(t, kind, k)
		require.Equal(t, kind, pod.KindOf(spec, name))
	}
	c, k := pod.Find(spec, "other")
	require.Nil(t, c)
	require.Equal(t, pod.KindUnknown, k)
	debug, _ := pod.Find(spec, "debug")
	require.Equal(t, "tools:1", debug.Image)
}

func TestRestartPolicy(t *testing.T) {
	spec := everyKind()
	require.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy(spec, &spec.InitContainers[0]))
	require.Equal(t, corev1.RestartPolicyOnFailure, pod.RestartPolicy(spec, &spec.InitContainers[2]))
	require.Equal(t, corev1.RestartPolicyAlways, pod.RestartPolicy(spec, &spec.Containers[0]))
}

func TestGracePeriod(t *testing.T) {
	p := userPod()
	require.EqualValues(t, 30, pod.GracePeriod(p), "C-16")
	n := int64(4)
	p.Spec.TerminationGracePeriodSeconds = &n
	require.EqualValues(t, 4, pod.GracePeriod(p))
}

// TestHostPorts holds Q-8: all containers count, each port once.
func TestHostPorts(t *testing.T) {
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 53, Protocol: corev1.ProtocolUDP}}}},
		Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{ContainerPort: 80}, {HostPort: 8080}, {HostPort: 8080, HostIP: "0.0.0.0", Protocol: corev1.ProtocolTCP}}},
			{Ports: []corev1.ContainerPort{{HostPort: 8080, HostIP: "127.0.0.1"}, {HostPort: 8080, HostIP: "::"}, {HostPort: 53}}},
		},
	}
	require.Equal(t, []pod.HostPort{
		{Protocol: corev1.ProtocolUDP, Port: 53},
		{Protocol: corev1.ProtocolTCP, Port: 8080},
		{IP: "127.0.0.1", Protocol: corev1.ProtocolTCP, Port: 8080},
		{Protocol: corev1.ProtocolTCP, Port: 53},
	}, pod.HostPorts(spec))
	require.Empty(t, pod.HostPorts(everyKind()))
}
