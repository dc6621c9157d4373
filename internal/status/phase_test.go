package status_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/status"
)

// parse reads containers and their statuses, in words such as
//
//	init:x0, side:r, main/Never:x1
//
// The part after a slash is the container's own policy; "*" adds a rule that
// restarts all on exit code 42. The state is r (running), s (running and
// started), q (running, and started is not told), again (running after an end
// with 0), w (waiting), xN (ended with N), bN (waits after an end with N), e (an
// empty state) or - (no status).
func parse(t *testing.T, policy corev1.RestartPolicy, text string) (spec *corev1.PodSpec, inits, mains []corev1.ContainerStatus) {
	t.Helper()
	spec = &corev1.PodSpec{RestartPolicy: policy}
	for i, word := range strings.Split(text, ", ") {
		head, state, ok := strings.Cut(word, ":")
		require.True(t, ok, word)
		kind, own, _ := strings.Cut(head, "/")
		c := corev1.Container{Name: fmt.Sprintf("%s%d", kind, i)}
		if kind == "side" {
			own = "Always" + own
		}
		if p := corev1.ContainerRestartPolicy(strings.TrimSuffix(own, "*")); p != "" {
			c.RestartPolicy = &p
		}
		if strings.HasSuffix(own, "*") {
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
		s, there := parseState(t, c.Name, state)
		if kind == "main" {
			spec.Containers = append(spec.Containers, c)
			if there {
				mains = append(mains, s)
			}
			continue
		}
		spec.InitContainers = append(spec.InitContainers, c)
		if there {
			inits = append(inits, s)
		}
	}
	return spec, inits, mains
}

func parseState(t *testing.T, name, state string) (s corev1.ContainerStatus, there bool) {
	t.Helper()
	s.Name = name
	end := func() *corev1.ContainerStateTerminated {
		n, err := strconv.ParseInt(state[1:], 10, 32)
		require.NoError(t, err)
		return &corev1.ContainerStateTerminated{ExitCode: int32(n)}
	}
	switch state[0] {
	case 'r', 's':
		started := state == "s"
		s.Started = &started
		s.State.Running = &corev1.ContainerStateRunning{}
	case 'q':
		s.State.Running = &corev1.ContainerStateRunning{}
	case 'a':
		s.State.Running = &corev1.ContainerStateRunning{}
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
	case 'w':
		s.State.Waiting = &corev1.ContainerStateWaiting{}
	case 'x':
		s.State.Terminated = end()
	case 'b':
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		s.LastTerminationState.Terminated = end()
	case 'e':
	default:
		return s, false
	}
	return s, true
}

type phaseCase struct {
	text string
	want corev1.PodPhase
}

// TestPhase holds PH-1 to PH-9 by policy and by what the pod has. "initialised"
// pods had all init containers done before.
func TestPhase(t *testing.T) {
	const pending, running, succeeded, failed = corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	for name, group := range map[string]struct {
		policy      corev1.RestartPolicy
		initialized bool
		cases       []phaseCase
	}{
		"Always": {"Always", true, []phaseCase{
			{"main:-, main:-", pending},
			{"main:r, main:r", running},
			{"main:x0, main:x0", running},
			{"main:x1, main:x1", running},
			{"main:r, main:x0", running},
			{"main:r, main:x1", running},
			{"main:r, main:-", pending},
			{"main:r, main:e", pending},
			{"main:x0, main:-", pending},
			{"main:r, main:w", pending},
			{"main:w, main:w", pending},
			{"main:r, main:b1", running},
			{"main:b1, main:b0", running},
			{"main:x0, main:b1", running},
			{"side:x0", pending}, // nothing that counts (PH-8)
		}},
		"Always with init": {"Always", false, []phaseCase{
			{"init:-, main:-", pending},
			{"init:r, main:w", pending},
			{"init:w, main:w", pending},
			{"init:x1, main:w", pending},
			{"init:b1, main:w", pending},
			{"init:e, main:w", pending},
			{"init:x0, main:r", running},
			{"init:x0, main:w", pending},
			{"init:x0, init:r, main:w", pending},
			{"init:x0, init/OnFailure:x0, main:r", running},
			{"init:b0, main:b143", pending}, // to be done again in a new sandbox (PH-11)
			{"init:x1, main:b1", pending},   // it is tried again first
			{"init:again, main:b1", pending},
			{"init/Never:x1, main:w", failed},
			{"init/Never:b1, main:w", failed},
			{"init/Never:x0, main:r", running},
		}},
		"Always with sidecar": {"Always", false, []phaseCase{
			{"side:-, main:-", pending},
			{"side:w, main:w", pending},
			{"side:e, main:r", pending},
			{"side:r, main:w", pending},
			{"side:r, main:r", pending},
			{"side:q, main:r", pending},
			{"side:s, main:w", pending},
			{"side:s, main:r", running},
			{"side:x0, main:r", running},
			{"side:x1, main:r", running},
			{"side:b1, main:r", running},
			{"side:b1, main:w", pending},
			{"side:w, main:r", pending},
			{"side:s, main:x0", running},
			{"side:s, main:b1", running},
			{"side:x0, main:x0", running},
		}},
		"Always, initialised": {"Always", true, []phaseCase{
			{"side:r, main:r", running},
			{"side:w, main:r", pending},
			{"side:-, main:r", pending},
			{"side:e, main:r", pending},
			{"side:b1, main:r", running},
			{"side:r, main:b1", running},
			{"side:-, main:x0", pending},
		}},
		"Never": {"Never", true, []phaseCase{
			{"main:-, main:-", pending},
			{"main:r, main:r", running},
			{"main:x0, main:x0", succeeded},
			{"main:x1, main:x1", failed},
			{"main:x0, main:x1", failed},
			{"main:r, main:x0", running},
			{"main:r, main:x1", running},
			{"main:r, main:-", pending},
			{"main:x0, main:w", pending},
			{"main:x0, main:-", pending},
			{"main:b1, main:x0", failed},
		}},
		"Never with init": {"Never", false, []phaseCase{
			{"init:-, main:-", pending},
			{"init:r, main:w", pending},
			{"init:x0, main:w", pending},
			{"init:x0, main:r", running},
			{"init:x1, main:w", failed},
			{"init:b1, main:w", failed},
			{"init:x1, init:w, main:w", failed},
			{"init/OnFailure:x1, main:w", pending},
			{"init:x0, main:x0", succeeded},
			{"init:x0, main:x1", failed},
		}},
		"Never with sidecar": {"Never", true, []phaseCase{
			{"side:-, main:-", pending},
			{"side:w, main:w", pending},
			{"side:s, main:w", pending},
			{"side:s, main:r", running},
			{"side:x0, main:r", running},
			{"side:x1, main:r", running},
			{"side:s, main:x0", running},
			{"side:s, main:x1", running},
			{"side:x0, main:x0", succeeded},
			{"side:x1, main:x0", succeeded},
			{"side:x0, main:x1", failed},
			{"side:b137, main:x0", succeeded},
			{"side:w, main:x0", pending},
		}},
		"OnFailure": {"OnFailure", true, []phaseCase{
			{"main:-, main:-", pending},
			{"main:r, main:r", running},
			{"main:x0, main:x0", succeeded},
			{"main:x1, main:x1", running},
			{"main:x0, main:x1", running},
			{"main:r, main:x0", running},
			{"main:r, main:-", pending},
			{"main:r, main:b1", running},
			{"main:x0, main:b1", running},
		}},
		"own policies": {"Always", true, []phaseCase{
			{"main/Never:x0, main/Never:x0", succeeded},
			{"main/Never:x1, main/Never:x0", failed},
			{"main/Never:x1, main:x0", running},
			{"main/OnFailure:x1, main/Never:x0", running},
			{"main/OnFailure:x0, main/Never:x0", succeeded},
			{"main/Never:r, main/Never:x1", running},
		}},
		"own policies in a pod with Never": {"Never", true, []phaseCase{
			{"main/Always:x0, main:x0", running},
			{"main/OnFailure:x1, main:x1", running},
			{"main/OnFailure:x0, main:x1", failed},
			{"init/Always:x1, main:r", running}, // that is a sidecar
			{"init/OnFailure:x1, main:w", pending},
			{"init/Never:x1, main:w", failed},
		}},
		"restart of all": {"Never", false, []phaseCase{
			{"main/Never*:x42, main:x0", running},
			{"main/Never*:x41, main:x0", failed},
			{"main/Never*:b42, main:b143", running},
			{"main/Never*:x42, main:r", running},
			{"main/Never*:r, main:x0", running},
			{"main/Never*:x0, main:x0", succeeded},
			{"init/Never*:x42, main:w", pending},
			{"init/Never*:b42, main:w", pending},
			{"init/Never*:x41, main:w", failed},
			{"init:b0, main/Never*:b42", pending},
			{"side/*:x42, main:x0", succeeded},
			{"side/*:b42, main:r", running},
			{"side/*:s, main:x1", running},
			{"side/*:w, main:w", pending},
			{"main/OnFailure*:x42, main:x0", running},
			{"main/OnFailure*:x1, main:x0", running},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range group.cases {
				spec, inits, mains := parse(t, group.policy, c.text)
				require.Equal(t, c.want, status.Phase(spec, inits, mains, group.initialized), c.text)
			}
		})
	}
}

// TestPhaseOfRestartingInit holds the exception in PH-1.
func TestPhaseOfRestartingInit(t *testing.T) {
	spec, inits, mains := parse(t, "Never", "init:x1, main:w")
	inits[0].State.Terminated.Reason = "RestartingAllContainers"
	require.Equal(t, corev1.PodPending, status.Phase(spec, inits, mains, false))
}
