package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/status"
)

// TestRow holds the words of kubectl's table.
func TestRow(t *testing.T) {
	reason := func(s *corev1.ContainerStatus, reason, message string) {
		switch {
		case s.State.Waiting != nil:
			s.State.Waiting.Reason, s.State.Waiting.Message = reason, message
		case s.State.Terminated != nil:
			s.State.Terminated.Reason, s.State.Terminated.Message = reason, message
		}
	}
	for name, c := range map[string]struct {
		text   string // see parse
		phase  corev1.PodPhase
		change func(p *corev1.Pod)
		want   status.Row
	}{
		"running": {
			"main:r, main:r", corev1.PodRunning,
			func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[1].RestartCount = true, 4
			},
			status.Row{Ready: 1, Total: 2, Status: "Running", Restarts: 4},
		},
		"sidecars count": {
			"side:s, init:x0, main:r", corev1.PodRunning,
			func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].Ready, p.Status.InitContainerStatuses[0].Ready = true, true
				p.Status.InitContainerStatuses[0].RestartCount, p.Status.InitContainerStatuses[1].RestartCount = 2, 1
			},
			status.Row{Ready: 2, Total: 2, Status: "Running", Restarts: 3},
		},
		"a sidecar that died is no init container to wait for": {
			"side:b1, main:r", corev1.PodRunning, nil, status.Row{Total: 2, Status: "Running"},
		},
		"no statuses yet": {
			"main:-", corev1.PodPending, nil, status.Row{Total: 1, Status: "Pending"},
		},
		"being made": {
			"main:w", corev1.PodPending,
			func(p *corev1.Pod) { reason(&p.Status.ContainerStatuses[0], "ContainerCreating", "") },
			status.Row{Total: 1, Status: "ContainerCreating"},
		},
		"a reason that is empty says nothing": {
			"main:w", corev1.PodPending, nil, status.Row{Total: 1, Status: "Pending"},
		},
		"in back-off": {
			"main:b1", corev1.PodRunning,
			func(p *corev1.Pod) { reason(&p.Status.ContainerStatuses[0], "CrashLoopBackOff", "back-off 10s") },
			status.Row{Total: 1, Status: "CrashLoopBackOff", Why: "main0: back-off 10s"},
		},
		"the first one has the last word": {
			"main:w, main:w", corev1.PodPending,
			func(p *corev1.Pod) {
				reason(&p.Status.ContainerStatuses[0], "ErrImagePull", "no such image")
				reason(&p.Status.ContainerStatuses[1], "ContainerCreating", "")
			},
			status.Row{Total: 2, Status: "ErrImagePull", Why: "main0: no such image"},
		},
		"failed": {
			"main:x3", corev1.PodFailed,
			func(p *corev1.Pod) { reason(&p.Status.ContainerStatuses[0], "Error", "disk is full\n") },
			status.Row{Total: 1, Status: "Error", Why: "main0: exit code 3 disk is full"},
		},
		"failed without a reason": {
			"main:x3", corev1.PodFailed, nil, status.Row{Total: 1, Status: "ExitCode:3", Why: "main0: exit code 3"},
		},
		"completed": {
			"main:x0", corev1.PodSucceeded, nil, status.Row{Total: 1, Status: "Completed"},
		},
		"completed after its init container had failed once": {
			"init:x1, main:x0", corev1.PodSucceeded, nil, status.Row{Total: 1, Status: "Completed"},
		},
		"one done, one running": {
			"main:x0, main:r", corev1.PodRunning, nil, status.Row{Total: 2, Status: "Running"},
		},
		"a reason of the pod": {
			"main:-", corev1.PodFailed,
			func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "the node was low on memory" },
			status.Row{Total: 1, Status: "Evicted", Why: "the node was low on memory"},
		},
		"a reason beside success": {
			"main:x0", corev1.PodSucceeded,
			func(p *corev1.Pod) { p.Status.Reason = "Shutdown" },
			status.Row{Total: 1, Status: "Shutdown"},
		},
		"initialising": {
			"init:x0, init:r, init:w, main:w", corev1.PodPending,
			func(p *corev1.Pod) {
				reason(&p.Status.InitContainerStatuses[2], "PodInitializing", "")
				reason(&p.Status.ContainerStatuses[0], "PodInitializing", "")
			},
			status.Row{Total: 1, Status: "Init:1/3"},
		},
		"about to initialise": {
			"init:w, main:w", corev1.PodPending,
			func(p *corev1.Pod) { reason(&p.Status.InitContainerStatuses[0], "ContainerCreating", "") },
			status.Row{Total: 1, Status: "Init:0/1"},
		},
		"a sidecar that has not started": {
			"side:r, main:w", corev1.PodPending, nil, status.Row{Total: 2, Status: "Init:0/1"},
		},
		"a sidecar that starts again after an end": {
			"side:again, main:w", corev1.PodPending, nil, status.Row{Total: 2, Status: "Init:0/1"},
		},
		"a sidecar without that field": {
			"side:w, main:w", corev1.PodPending,
			func(p *corev1.Pod) { reason(&p.Status.InitContainerStatuses[0], "PodInitializing", "") },
			status.Row{Total: 2, Status: "Init:0/1"},
		},
		"an init container waits for its image": {
			"init:w, main:w", corev1.PodPending,
			func(p *corev1.Pod) { reason(&p.Status.InitContainerStatuses[0], "ErrImagePull", "no such image") },
			status.Row{Total: 1, Status: "Init:ErrImagePull", Why: "init0: no such image"},
		},
		"an init container failed": {
			"init:x4, main:w", corev1.PodPending,
			func(p *corev1.Pod) { reason(&p.Status.InitContainerStatuses[0], "Error", "bad") },
			status.Row{Total: 1, Status: "Init:Error", Why: "init0: bad"},
		},
		"an init container failed without a reason": {
			"init:x4, main:w", corev1.PodPending, nil, status.Row{Total: 1, Status: "Init:ExitCode:4"},
		},
		"an init container failed for good": {
			"init:x4, main:w", corev1.PodFailed,
			func(p *corev1.Pod) { reason(&p.Status.ContainerStatuses[0], "PodInitializing", "") },
			status.Row{Total: 1, Status: "Init:ExitCode:4"},
		},
		"the pod was ended while it initialised": {
			"init:w, main:w", corev1.PodFailed,
			func(p *corev1.Pod) {
				p.Status.Reason = "DeadlineExceeded"
				reason(&p.Status.ContainerStatuses[0], "PodInitializing", "")
			},
			status.Row{Total: 1, Status: "DeadlineExceeded"},
		},
		"the pod was ended while it ran": {
			"main:x143", corev1.PodFailed,
			func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "DeadlineExceeded", "too late" },
			status.Row{Total: 1, Status: "DeadlineExceeded", Why: "too late"},
		},
		"one never started, the other failed": {
			"main:w, main:x1", corev1.PodFailed,
			func(p *corev1.Pod) { reason(&p.Status.ContainerStatuses[0], "ContainerCreating", "") },
			status.Row{Total: 2, Status: "ExitCode:1", Why: "main1: exit code 1"},
		},
		"a status without a container in the spec": {
			"init:w, main:r", corev1.PodRunning,
			func(p *corev1.Pod) { p.Spec.InitContainers = nil },
			status.Row{Total: 1, Status: "Running"},
		},
		"ending": {
			"main:r", corev1.PodRunning,
			func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
			status.Row{Total: 1, Status: "Terminating"},
		},
		"ended": {
			"main:x0", corev1.PodSucceeded,
			func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
			status.Row{Total: 1, Status: "Completed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			spec, inits, mains := parse(t, corev1.RestartPolicyAlways, c.text)
			p.Spec, p.Status.InitContainerStatuses, p.Status.ContainerStatuses = *spec, inits, mains
			p.Status.Phase = c.phase
			for i := range p.Spec.Containers { // parse numbers all containers
				p.Spec.Containers[i].Name = "main" + string(rune('0'+i))
				if i < len(mains) {
					mains[i].Name = p.Spec.Containers[i].Name
				}
			}
			if c.change != nil {
				c.change(p)
			}
			require.Equal(t, c.want, status.RowOf(p))
		})
	}
}
