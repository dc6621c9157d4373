package status_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// conditionLines writes each condition as "Type=Status Reason: Message".
func conditionLines(st corev1.PodStatus) []string {
	var lines []string
	for _, c := range st.Conditions {
		line := fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		lines = append(lines, strings.TrimSuffix(strings.TrimSuffix(line, ": "), " "))
	}
	return lines
}

// TestConditions holds CON-1 to CON-6, CON-11 and RR-7 over the life of a pod.
func TestConditions(t *testing.T) {
	all := func(in *status.Input) {
		in.Record.Initialized = pod.Initialization{SandboxID: "s0"}
		in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
		in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0), running("web-0", "web", 0)}
	}
	for name, c := range map[string]struct {
		change func(*status.Input)
		want   []string
	}{
		"no sandbox yet": {
			func(in *status.Input) { in.Observed.Sandboxes = nil },
			[]string{
				"PodReadyToStartContainers=False",
				"Initialized=False ContainersNotInitialized: containers with incomplete status: [seed proxy]",
				"Ready=False ContainersNotReady: containers with unready status: [proxy web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [proxy web]",
				"PodScheduled=True",
			},
		},
		"a sandbox without an address": {
			func(in *status.Input) { all(in); in.Observed.Sandboxes[0].IPs = nil },
			[]string{"PodReadyToStartContainers=False", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		"on the host's network it needs none": {
			func(in *status.Input) {
				all(in)
				in.Observed.Sandboxes[0].IPs, in.Pod.Spec.HostNetwork = nil, true
			},
			[]string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		"a sandbox that is not ready": {
			func(in *status.Input) { all(in); in.Observed.Sandboxes[0].Ready = false },
			[]string{"PodReadyToStartContainers=False", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		"the sidecar has started, the migration is done, the rest is not there": {
			func(in *status.Input) {
				all(in)
				in.Observed.Containers = in.Observed.Containers[:1]
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				"Ready=False ContainersNotReady: containers with unready status: [web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [web]",
				"PodScheduled=True",
			},
		},
		"the migration runs": {
			func(in *status.Input) { in.Observed.Containers = []pod.Container{running("seed-0", "seed", 0)} },
			[]string{
				"PodReadyToStartContainers=True",
				"Initialized=False ContainersNotInitialized: containers with incomplete status: [seed proxy]",
				"Ready=False ContainersNotReady: containers with unready status: [proxy web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [proxy web]",
				"PodScheduled=True",
			},
		},
		"a sidecar that started and is not ready": {
			func(in *status.Input) {
				all(in)
				in.Observed.Containers = in.Observed.Containers[:1]
				in.Pod.Spec.InitContainers[1].ReadinessProbe = &corev1.Probe{}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				"Ready=False ContainersNotReady: containers with unready status: [proxy web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [proxy web]",
				"PodScheduled=True",
			},
		},
		"a closed gate is no matter before the containers are ready": {
			func(in *status.Input) {
				all(in)
				in.Observed.Containers = in.Observed.Containers[:1]
				in.Pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a/none"}}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				"Ready=False ContainersNotReady: containers with unready status: [web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [web]",
				"PodScheduled=True",
			},
		},
		"all is well": {
			all,
			[]string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		"the sidecar died; the pod stays initialised": {
			func(in *status.Input) {
				all(in)
				in.Observed.Containers = in.Observed.Containers[1:]
				in.Record.Containers["proxy"] = pod.ContainerRecord{Attempts: 1, Exit: exit("proxy-0", 1)}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				"Ready=False ContainersNotReady: containers with unready status: [proxy]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [proxy]",
				"PodScheduled=True",
			},
		},
		"the normal container crashed; the pod stays initialised": {
			func(in *status.Input) {
				in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0)}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: exit("web-0", 1)}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				"Ready=False ContainersNotReady: containers with unready status: [web]",
				"ContainersReady=False ContainersNotReady: containers with unready status: [web]",
				"PodScheduled=True",
			},
		},
		"a readiness gate is closed": {
			func(in *status.Input) {
				all(in)
				in.Pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a/open"}, {ConditionType: "a/shut"}, {ConditionType: "a/none"}}
				in.Record.Status = &corev1.PodStatus{Conditions: []corev1.PodCondition{
					{Type: "a/open", Status: "True"}, {Type: "a/shut", Status: "False"},
				}}
			},
			[]string{
				"a/open=True", "a/shut=False", // CON-10
				"PodReadyToStartContainers=True", "Initialized=True",
				`Ready=False ReadinessGatesNotReady: corresponding condition of pod readiness gate "a/shut" is not "True", ` +
					`corresponding condition of pod readiness gate "a/none" is not "True"`,
				"ContainersReady=True", "PodScheduled=True",
			},
		},
		"a gate, and no status before": {
			func(in *status.Input) {
				all(in)
				in.Pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "a/none"}}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True",
				`Ready=False ReadinessGatesNotReady: corresponding condition of pod readiness gate "a/none" is not "True"`,
				"ContainersReady=True", "PodScheduled=True",
			},
		},
		"a restart of all": {
			func(in *status.Input) {
				all(in)
				in.Record.RestartAll = &pod.RestartAll{Trigger: "web"}
				in.Record.Status = &corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: status.AllContainersRestarting, Status: "True"}}}
			},
			[]string{
				"PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True",
				"AllContainersRestarting=True RestartAllContainersStarted: the exit of container web restarts all containers",
			},
		},
		"succeeded": {
			func(in *status.Input) {
				in.Observed.Sandboxes[0].Ready = false
				in.Record.Phase, in.Record.Outcome = pod.PhaseTerminated, &pod.Outcome{Phase: corev1.PodSucceeded}
			},
			[]string{
				"PodReadyToStartContainers=False", "Initialized=True PodCompleted", "Ready=False PodCompleted",
				"ContainersReady=False PodCompleted", "PodScheduled=True",
			},
		},
		"failed": {
			func(in *status.Input) {
				all(in)
				in.Observed.Sandboxes[0].Ready = false
				in.Record.Phase, in.Record.Outcome = pod.PhaseTerminated, &pod.Outcome{Phase: corev1.PodFailed}
			},
			[]string{
				"PodReadyToStartContainers=False", "Initialized=True", "Ready=False PodFailed",
				"ContainersReady=False PodFailed", "PodScheduled=True",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t)
			c.change(&in)
			st := status.Compute(in)
			require.Equal(t, c.want, conditionLines(st))
			for _, cond := range st.Conditions {
				if !strings.HasPrefix(string(cond.Type), "a/") {
					require.EqualValues(t, 7, cond.ObservedGeneration, "ST-17")
				}
				require.True(t, cond.LastProbeTime.IsZero(), "CON-9")
			}
		})
	}
}

// TestTransitionTimes holds CON-9: a time moves only with its status.
func TestTransitionTimes(t *testing.T) {
	times := func(st corev1.PodStatus) map[corev1.PodConditionType]string {
		out := map[corev1.PodConditionType]string{}
		for _, c := range st.Conditions {
			out[c.Type] = c.LastTransitionTime.Format("05")
		}
		return out
	}
	in := inputOf(t)
	in.Now = at(10)
	st := status.Compute(in)
	require.Equal(t, map[corev1.PodConditionType]string{
		"PodReadyToStartContainers": "10", "Initialized": "10", "Ready": "10", "ContainersReady": "10", "PodScheduled": "10",
	}, times(st))

	in.Record.Status, in.Now = &st, at(20)
	in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
	in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0)}
	next := status.Compute(in)
	require.Equal(t, map[corev1.PodConditionType]string{
		"PodReadyToStartContainers": "10", "Initialized": "20", "Ready": "10", "ContainersReady": "10", "PodScheduled": "10",
	}, times(next), "the message of Ready changed, its status did not")

	in.Record.Status, in.Now = &next, at(30)
	require.Equal(t, times(next), times(status.Compute(in)), "nothing changed")

	next.Conditions[0].LastTransitionTime = metav1.Time{}
	require.Equal(t, "30", times(status.Compute(in))["PodReadyToStartContainers"], "a time that nobody knew is now")
}

func TestTerminal(t *testing.T) {
	for phase, terminal := range map[corev1.PodPhase]bool{
		corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false, "": false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		require.Equal(t, terminal, status.Terminal(phase), string(phase))
	}
}
