package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

// TestReadiness holds ST-8 for probed containers, by verdict.
func TestReadiness(t *testing.T) {
	for name, c := range map[string]struct {
		startup, readiness bool // probes that the container has
		verdict            pod.Verdicts
		started, ready     bool
	}{
		"no probes":                       {false, false, pod.Verdicts{}, true, true},
		"startup undecided":               {true, false, pod.Verdicts{ContainerID: "web-0"}, false, false},
		"startup passed":                  {true, false, pod.Verdicts{ContainerID: "web-0", Startup: pod.Passed}, true, true},
		"startup failed":                  {true, false, pod.Verdicts{ContainerID: "web-0", Startup: pod.Failed}, false, false},
		"startup passed, not this one":    {true, false, pod.Verdicts{ContainerID: "web-9", Startup: pod.Passed}, false, false},
		"readiness undecided":             {false, true, pod.Verdicts{}, true, false},
		"readiness passed":                {false, true, pod.Verdicts{ContainerID: "web-0", Readiness: pod.Passed}, true, true},
		"readiness failed":                {false, true, pod.Verdicts{ContainerID: "web-0", Readiness: pod.Failed}, true, false},
		"readiness passed, not this one":  {false, true, pod.Verdicts{ContainerID: "web-9", Readiness: pod.Passed}, true, false},
		"readiness passed before startup": {true, true, pod.Verdicts{ContainerID: "web-0", Readiness: pod.Passed}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t)
			in.Pod.Spec.InitContainers = nil
			web := &in.Pod.Spec.Containers[0]
			if c.startup {
				web.StartupProbe = &corev1.Probe{}
			}
			if c.readiness {
				web.ReadinessProbe = &corev1.Probe{}
			}
			in.Observed.Containers = []pod.Container{running("web-0", "web", 0)}
			cr := in.Record.Container("web")
			cr.Probed = c.verdict
			in.Record.SetContainer("web", cr)
			s := status.Compute(in).ContainerStatuses[0]
			require.Equal(t, c.started, *s.Started)
			require.Equal(t, c.ready, s.Ready)

			in.Observed.Containers[0].State = pod.StateExited
			s = status.Compute(in).ContainerStatuses[0]
			require.False(t, *s.Started || s.Ready, "what does not run is neither")
		})
	}
}

// TestPlainInitRuns holds that an init container counts as started while it runs.
func TestPlainInitRuns(t *testing.T) {
	in := inputOf(t)
	in.Observed.Containers = []pod.Container{running("seed-0", "seed", 0)}
	s := status.Compute(in).InitContainerStatuses[0]
	require.True(t, *s.Started)
	require.False(t, s.Ready)
}

// TestWholeStatus holds what does not belong to one container.
func TestWholeStatus(t *testing.T) {
	in := inputOf(t)
	in.Pod.Spec.Containers = append(in.Pod.Spec.Containers, corev1.Container{Name: "api"})
	in.Pod.Spec.EphemeralContainers = append(in.Pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "ask"}})
	in.HostIPs = []string{"192.0.2.1", "2001:db8::1"}
	in.Record.Sandbox.IPs = []string{"10.1.0.1", "fd00::1"}
	st := status.Compute(in)
	require.Equal(t, shown(0), *st.StartTime)
	require.EqualValues(t, 7, st.ObservedGeneration, "ST-17")
	require.Equal(t, corev1.PodQOSBestEffort, st.QOSClass)
	require.Equal(t, "192.0.2.1", st.HostIP)
	require.Equal(t, []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}, st.HostIPs)
	require.Equal(t, "10.1.0.1", st.PodIP)
	require.Equal(t, []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd00::1"}}, st.PodIPs, "ST-16")
	require.Equal(t, []string{"seed", "proxy"}, []string{st.InitContainerStatuses[0].Name, st.InitContainerStatuses[1].Name}, "ST-12: in spec order")
	require.Equal(t, []string{"api", "web"}, []string{st.ContainerStatuses[0].Name, st.ContainerStatuses[1].Name}, "ST-12: by name")
	require.Equal(t, []string{"ask", "debug"}, []string{st.EphemeralContainerStatuses[0].Name, st.EphemeralContainerStatuses[1].Name}, "ST-12: by name")
	require.Equal(t, st, status.Compute(in), "equal input gives an equal status")

	in.Observed.Sandboxes[0].Ready = false
	require.Equal(t, "10.1.0.1", status.Compute(in).PodIP, "ST-16: kept after the sandbox died")

	in.Pod.Spec.HostNetwork = true
	st = status.Compute(in)
	require.Equal(t, "192.0.2.1", st.PodIP, "ST-15")
	require.Len(t, st.PodIPs, 2)
	in.Observed.Sandboxes = nil
	in.Record = pod.Record{}
	st = status.Compute(in)
	require.Empty(t, st.PodIP, "ST-15: not before it has a sandbox")
	require.Nil(t, st.StartTime)
}

// TestResourcesAndUser holds ST-10: they are the runtime's.
func TestResourcesAndUser(t *testing.T) {
	in := inputOf(t)
	c := running("web-0", "web", 0)
	c.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	c.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 5}}
	in.Observed.Containers = []pod.Container{c}
	s := status.Compute(in).ContainerStatuses[0]
	require.Equal(t, c.Resources, s.Resources)
	require.Equal(t, c.User, s.User)
}

// TestPublishedPhase holds when a phase is told (INV-2, PH-10, PH-13, PH-14).
func TestPublishedPhase(t *testing.T) {
	over := func(in *status.Input) {
		in.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		in.Pod.Spec.InitContainers = nil
		in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: exit("web-0", 0)}
	}
	for name, c := range map[string]struct {
		change          func(*status.Input)
		phase           corev1.PodPhase
		reason, message string
	}{
		"ended, and not yet torn down: not terminal": {over, corev1.PodRunning, "", ""},
		"ended before it was ever seen to run: still not": {func(in *status.Input) {
			over(in)
			in.Record.Status = &corev1.PodStatus{Phase: corev1.PodPending}
		}, corev1.PodPending, "", ""},
		"decided, while something may run": {func(in *status.Input) {
			over(in)
			in.Record.Phase, in.Record.Outcome = pod.PhaseTerminating, &pod.Outcome{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}
		}, corev1.PodRunning, "", ""},
		"decided and down": {func(in *status.Input) {
			over(in)
			in.Record.Phase, in.Record.Outcome = pod.PhaseTerminated, &pod.Outcome{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "late"}
		}, corev1.PodFailed, "DeadlineExceeded", "late"},
		"decided stays, whatever is seen later": {func(in *status.Input) {
			in.Observed.Containers = []pod.Container{running("web-0", "web", 0)}
			in.Record.Phase, in.Record.Outcome = pod.PhaseFinished, &pod.Outcome{Phase: corev1.PodSucceeded}
		}, corev1.PodSucceeded, "", ""},
		"a restart of all under Never is not an end": {func(in *status.Input) {
			over(in)
			in.Record.Status = &corev1.PodStatus{Phase: corev1.PodPending}
			in.Record.RestartAll = &pod.RestartAll{Trigger: "web"}
		}, corev1.PodRunning, "", ""},
		"a restart of all that begins with init containers: pending": {func(in *status.Input) {
			in.Record.RestartAll = &pod.RestartAll{Trigger: "web"}
		}, corev1.PodPending, "", ""},
		"ended after it was seen to run": {func(in *status.Input) {
			over(in)
			in.Record.Status = &corev1.PodStatus{Phase: corev1.PodRunning}
		}, corev1.PodRunning, "", ""},
		"down, by a record that decided nothing": {func(in *status.Input) {
			over(in)
			in.Record.Phase = pod.PhaseTerminated
		}, corev1.PodRunning, "", ""},
		"the pod waits, and says why": {func(in *status.Input) {
			in.Waits = []pod.Wait{{Reason: "FailedMount", Message: "cannot mount data"}}
		}, corev1.PodPending, "FailedMount", "cannot mount data"},
		"a container goes on while its swap is held up (Q-33)": {func(in *status.Input) {
			in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0), running("web-0", "web", 0)}
			in.Record.Initialized = pod.Initialization{SandboxID: "s0"}
			in.Waits = []pod.Wait{
				{Container: "proxy", Reason: "ContainerCreating"},
				{Container: "seed", Reason: "Other"},
				{Container: "web", Reason: "ErrImagePull", Message: "no such image"},
			}
		}, corev1.PodRunning, "", "container web goes on as it is: ErrImagePull: no such image"},
		"a sidecar likewise": {func(in *status.Input) {
			in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0)}
			in.Waits = []pod.Wait{{Container: "proxy", Reason: "ErrImagePull", Message: "no such image"}}
		}, corev1.PodPending, "", "container proxy goes on as it is: ErrImagePull: no such image"},
		"to be under way is no reason": {func(in *status.Input) {
			in.Waits = []pod.Wait{{Reason: "ContainerCreating"}}
		}, corev1.PodPending, "", ""},
		"to initialise is none either": {func(in *status.Input) {
			in.Waits = []pod.Wait{{Reason: "PodInitializing", Message: "seed"}}
		}, corev1.PodPending, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t)
			c.change(&in)
			st := status.Compute(in)
			require.Equal(t, c.phase, st.Phase)
			require.Equal(t, c.reason, st.Reason)
			require.Equal(t, c.message, st.Message)
		})
	}
}

// TestInitializedBelongsToItsSandbox holds PH-11: in a new sandbox with init
// containers a running pod is pending again.
func TestInitializedBelongsToItsSandbox(t *testing.T) {
	in := inputOf(t)
	in.Record.Initialized = pod.Initialization{SandboxID: "s0"}
	in.Observed.Containers = []pod.Container{running("proxy-0", "proxy", 0), running("web-0", "web", 0)}
	require.Equal(t, corev1.PodRunning, status.Compute(in).Phase)
	in.Observed.Sandboxes[0].ID = "s1"
	require.Equal(t, corev1.PodPending, status.Compute(in).Phase)
	in.Observed.Sandboxes = nil
	require.Equal(t, corev1.PodRunning, status.Compute(in).Phase, "without any, what was done last counts")
	in.Record.Initialized = pod.Initialization{}
	require.Equal(t, corev1.PodPending, status.Compute(in).Phase)
}

// TestPhaseAcrossSandboxes holds that it is so for the third sandbox as for the
// second, though ends of init containers are remembered.
func TestPhaseAcrossSandboxes(t *testing.T) {
	in := inputOf(t)
	in.Observed.Sandboxes[0].ID = "s2"
	in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 2, Exit: exit("seed-1", 0), Previous: exit("seed-0", 0)}
	in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 2, Exit: exit("web-1", 255), Previous: exit("web-0", 255)}
	require.Equal(t, corev1.PodPending, status.Compute(in).Phase)
}
