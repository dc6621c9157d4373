package status_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/status"
)

func clock(seconds int) time.Time {
	return time.Date(2032, 2, 3, 10, 0, 0, 500, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func at(seconds int) pod.Stamp {
	return pod.Stamp{Wall: clock(seconds), Boot: time.Duration(seconds) * time.Second, BootID: "boot"}
}

func shown(seconds int) metav1.Time { return metav1.NewTime(clock(seconds).Truncate(time.Second)) }

func podOf(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "uid-1", Generation: 7}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// inputOf is a pod with a migration, a sidecar and a normal container in one
// ready sandbox of which nothing has been made yet.
func inputOf(t *testing.T) status.Input {
	t.Helper()
	return status.Input{
		Pod: podOf(t, `
restartPolicy: Always
initContainers: [{name: seed, image: "seed:1"}, {name: proxy, image: "proxy:1", restartPolicy: Always}]
containers: [{name: web, image: "web:1"}]
ephemeralContainers: [{name: debug, image: "debug:1"}]`),
		Observed: pod.Observation{Sandboxes: []pod.Sandbox{{ID: "s0", Ready: true, IPs: []string{"10.1.0.1"}}}},
		Record:   pod.Record{Started: at(0), Containers: map[string]pod.ContainerRecord{}},
		Runtime:  "containerd", Now: at(60),
	}
}

func running(id, name string, attempt uint32) pod.Container {
	return pod.Container{ID: id, Name: name, SandboxID: "s0", Attempt: attempt, State: pod.StateRunning, StartedAt: clock(5), Image: name + ":1", ImageID: "sha256:" + name}
}

func exit(id string, code int32) *pod.Exit {
	return &pod.Exit{ContainerID: id, SandboxID: "s0", ExitCode: code, Reason: "Error", Message: "why", StartedAt: clock(1), FinishedAt: clock(2), Image: "old:1", ImageID: "sha256:old"}
}

func ended(id string, code int32) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: "why", StartedAt: shown(1), FinishedAt: shown(2), ContainerID: "containerd://" + id}
}

func waits(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

// TestContainerStatus holds ST-1 to ST-8 for one container at a time.
func TestContainerStatus(t *testing.T) {
	done := pod.Initialization{SandboxID: "s0", BootID: "boot"}
	for name, c := range map[string]struct {
		container string
		change    func(*status.Input)
		want      corev1.ContainerStatus
	}{
		"ST-4: nothing made, init containers first": {
			"web", func(*status.Input) {},
			corev1.ContainerStatus{Image: "web:1", State: waits("PodInitializing")},
		},
		"ST-4: nothing made, initialised": {
			"web", func(in *status.Input) { in.Record.Initialized = done },
			corev1.ContainerStatus{Image: "web:1", State: waits("ContainerCreating")},
		},
		"ST-4: nothing made, no init containers": {
			"web", func(in *status.Input) { in.Pod.Spec.InitContainers = nil },
			corev1.ContainerStatus{Image: "web:1", State: waits("ContainerCreating")},
		},
		"an ephemeral container waits for no init container": {
			"debug", func(*status.Input) {},
			corev1.ContainerStatus{Image: "debug:1", State: waits("ContainerCreating")},
		},
		"running for the first time": {
			"web", func(in *status.Input) {
				in.Observed.Containers = []pod.Container{running("web-0", "web", 0)}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Running: "web-0"}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-0", Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shown(5)}},
			},
		},
		"ST-1, ST-7: running again, the end before is the last state": {
			"web", func(in *status.Input) {
				in.Observed.Containers = []pod.Container{running("web-2", "web", 2)}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 3, Running: "web-2", Exit: exit("web-1", 3), Previous: exit("web-0", 2)}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-2", RestartCount: 2, Ready: true, Started: new(true),
				State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shown(5)}},
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-1", 3)},
			},
		},
		"ST-2: created": {
			"web", func(in *status.Input) {
				c := running("web-1", "web", 1)
				c.State = pod.StateCreated
				in.Observed.Containers = []pod.Container{c}
				in.Record.Initialized = done
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 2, Exit: exit("web-0", 3)}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-1", RestartCount: 1,
				State:                waits("ContainerCreating"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-0", 3)},
			},
		},
		"ST-2: unknown after it ran": {
			"web", func(in *status.Input) {
				c := running("web-0", "web", 0)
				c.State = pod.StateUnknown
				in.Observed.Containers = []pod.Container{c}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Running: "web-0"}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-0",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: "containerd://web-0",
					Message: "The state of the container is unknown to the runtime",
				}},
			},
		},
		"ST-2: unknown, and nobody saw it run": {
			"web", func(in *status.Input) {
				c := running("web-1", "web", 1)
				c.State = pod.StateUnknown
				in.Observed.Containers = []pod.Container{c}
				in.Record.Initialized = done
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 2, Exit: exit("web-0", 3)}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-1", RestartCount: 1,
				State:                waits("ContainerCreating"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-0", 3)},
			},
		},
		"STC-3: created, and the start failed": {
			"web", func(in *status.Input) {
				c := running("web-0", "web", 0)
				c.State = pod.StateCreated
				in.Observed.Containers = []pod.Container{c}
				in.Waits = []pod.Wait{{Container: "web", Reason: "RunContainerError", Message: "no such file"}}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-0",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "RunContainerError", Message: "no such file"}},
			},
		},
		"ST-9: the image of the instance while the spec has another": {
			"web", func(in *status.Input) {
				in.Pod.Spec.Containers[0].Image = "web:2"
				in.Observed.Containers = []pod.Container{running("web-0", "web", 0)}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "containerd://web-0", Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shown(5)}},
			},
		},
		"ended, and still listed": {
			"web", func(in *status.Input) {
				c := running("web-0", "web", 0)
				c.State, c.User = pod.StateExited, &corev1.ContainerUser{}
				in.Observed.Containers = []pod.Container{c}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Running: "web-0", Exit: exit("web-0", 3)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-0", User: &corev1.ContainerUser{},
				State: corev1.ContainerState{Terminated: ended("web-0", 3)},
			},
		},
		"a normal container ended in an older sandbox: that stands": {
			"web", func(in *status.Input) {
				in.Observed.Sandboxes[0].ID = "s1"
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: exit("web-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-0",
				State: corev1.ContainerState{Terminated: ended("web-0", 0)},
			},
		},
		"so does one of an init container when this sandbox is initialised": {
			"seed", func(in *status.Input) {
				in.Observed.Sandboxes[0].ID = "s1"
				in.Record.Initialized = pod.Initialization{SandboxID: "s1"}
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://seed-0", Ready: true,
				State: corev1.ContainerState{Terminated: ended("seed-0", 0)},
			},
		},
		"ST-6: ended and due to restart: it waits, the end is the last state": {
			"web", func(in *status.Input) {
				in.Waits = []pod.Wait{{Container: "web", Reason: "CrashLoopBackOff", Message: "10s"}, {Container: "web", Reason: "Other"}}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: exit("web-0", 3)}
			},
			corev1.ContainerStatus{
				Image:                "web:1",
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "10s"}},
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-0", 3)},
			},
		},
		"ended for good": {
			"web", func(in *status.Input) {
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 2, Exit: exit("web-1", 3), Previous: exit("web-0", 2)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-1", RestartCount: 1,
				State:                corev1.ContainerState{Terminated: ended("web-1", 3)},
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-0", 2)},
			},
		},
		"a wait of a pod that ends is no wait": {
			"web", func(in *status.Input) {
				in.Waits = []pod.Wait{{Container: "web", Reason: "KillContainerError"}}
				in.Record.Phase = pod.PhaseTerminating
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: exit("web-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-0",
				State: corev1.ContainerState{Terminated: ended("web-0", 0)},
			},
		},
		"ST-3: lost is never a success (INV-12)": {
			"web", func(in *status.Input) {
				e := exit("web-0", 137)
				e.Reason = "ContainerStatusUnknown"
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Exit: e}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-0",
				State: func() corev1.ContainerState {
					e := ended("web-0", 137)
					e.Reason = "ContainerStatusUnknown"
					return corev1.ContainerState{Terminated: e}
				}(),
			},
		},
		"a listed instance older than the remembered end says nothing": {
			"web", func(in *status.Input) {
				in.Observed.Containers = []pod.Container{running("web-0", "web", 0)}
				e := exit("web-1", 3)
				e.Attempt = 1
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 2, Exit: e}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://web-1", RestartCount: 1,
				State: corev1.ContainerState{Terminated: ended("web-1", 3)},
			},
		},
		"an init container that is done is ready": {
			"seed", func(in *status.Input) {
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://seed-0", Ready: true,
				State: corev1.ContainerState{Terminated: ended("seed-0", 0)},
			},
		},
		"one that failed is not": {
			"seed", func(in *status.Input) {
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 1)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://seed-0",
				State: corev1.ContainerState{Terminated: ended("seed-0", 1)},
			},
		},
		"ST-5: done, although nobody remembers": {
			"seed", func(in *status.Input) { in.Record.Initialized = done },
			corev1.ContainerStatus{
				Image: "seed:1", Ready: true,
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
			},
		},
		"ST-5: a sidecar that nobody remembers waits": {
			"proxy", func(in *status.Input) { in.Record.Initialized = done },
			corev1.ContainerStatus{Image: "proxy:1", State: waits("ContainerCreating")},
		},
		"done in an older sandbox: it is to run again, the end is the last state": {
			"seed", func(in *status.Input) {
				in.Observed.Sandboxes[0].ID = "s1"
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "seed:1", State: waits("PodInitializing"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("seed-0", 0)},
			},
		},
		"the same for a sidecar": {
			"proxy", func(in *status.Input) {
				in.Observed.Sandboxes[0].ID = "s1"
				in.Record.Containers["proxy"] = pod.ContainerRecord{Attempts: 1, Exit: exit("proxy-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "proxy:1", State: waits("PodInitializing"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("proxy-0", 0)},
			},
		},
		"without any sandbox the last end stands": {
			"seed", func(in *status.Input) {
				in.Observed.Sandboxes = nil
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Exit: exit("seed-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "old:1", ImageID: "sha256:old", ContainerID: "containerd://seed-0", Ready: true,
				State: corev1.ContainerState{Terminated: ended("seed-0", 0)},
			},
		},
		"RR-7: while all containers restart": {
			"web", func(in *status.Input) {
				in.Record.RestartAll = &pod.RestartAll{Trigger: "web"}
				in.Record.Containers["web"] = pod.ContainerRecord{Attempts: 1, Previous: exit("web-0", 42)}
			},
			corev1.ContainerStatus{
				Image: "web:1", State: waits("RestartingAllContainers"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("web-0", 42)},
			},
		},
		"after a restart of all an init container waits with its last end": {
			"seed", func(in *status.Input) {
				in.Record.Initialized = done
				in.Record.Containers["seed"] = pod.ContainerRecord{Attempts: 1, Previous: exit("seed-0", 0)}
			},
			corev1.ContainerStatus{
				Image: "seed:1", State: waits("ContainerCreating"),
				LastTerminationState: corev1.ContainerState{Terminated: ended("seed-0", 0)},
			},
		},
		"ST-8: an ephemeral container is never ready": {
			"debug", func(in *status.Input) {
				in.Observed.Containers = []pod.Container{running("debug-0", "debug", 0)}
			},
			corev1.ContainerStatus{
				Image: "debug:1", ImageID: "sha256:debug", ContainerID: "containerd://debug-0",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shown(5)}},
			},
		},
		"no name of the runtime: plain IDs, and no image from it: the spec's": {
			"web", func(in *status.Input) {
				c := running("web-0", "web", 0)
				c.Image = ""
				in.Runtime, in.Observed.Containers = "", []pod.Container{c}
			},
			corev1.ContainerStatus{
				Image: "web:1", ImageID: "sha256:web", ContainerID: "web-0", Ready: true, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: shown(5)}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputOf(t)
			c.change(&in)
			st := status.Compute(in)
			var got corev1.ContainerStatus
			for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
				for _, s := range list {
					if s.Name == c.container {
						got = s
					}
				}
			}
			c.want.Name = c.container
			if c.want.Started == nil {
				c.want.Started = new(false)
			}
			require.Empty(t, cmp.Diff(c.want, got))
		})
	}
}
