package podworkers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// TestMailbox: each slot keeps its newest, and the wake-up is one token.
func TestMailbox(t *testing.T) {
	m := newMailbox()
	require.Empty(t, m.wake)
	first, second := &corev1.Pod{}, &corev1.Pod{}
	m.PutPod(first)
	m.PutPod(second)
	now := time.Now()
	m.PutObservation(pod.Observation{TakenAt: now})
	m.PutObservation(pod.Observation{TakenAt: now.Add(-time.Second)})
	m.PutVerdicts(pod.Verdicts{ContainerID: "a1", Readiness: pod.Passed})
	m.PutVerdicts(pod.Verdicts{ContainerID: "b1", Readiness: pod.Passed})
	m.PutVerdicts(pod.Verdicts{ContainerID: "b1", Liveness: pod.Failed})
	m.PutVerdicts(pod.Verdicts{ContainerID: "a1", Readiness: pod.Failed})
	m.Poke()
	require.Len(t, m.wake, 1)
	got := m.take()
	require.Same(t, second, got.pod)
	require.Equal(t, now, got.observation.TakenAt)
	require.Equal(t, map[string]pod.Verdicts{
		"a1": {ContainerID: "a1", Readiness: pod.Failed}, "b1": {ContainerID: "b1", Readiness: pod.Passed, Liveness: pod.Failed},
	}, got.verdicts, "the newest of each kind")
	require.Nil(t, got.stop)
	require.Equal(t, mail{}, m.take())
}

// TestMailboxMergesStops: Q-4 and PW-6. Requests that the worker has not seen yet
// are one, as strict as the strictest.
func TestMailboxMergesStops(t *testing.T) {
	short, long := int64(3), int64(30)
	m := newMailbox()
	m.PutStop(pod.StopRequest{GraceSeconds: &long, Delete: true})
	m.PutStop(pod.StopRequest{Reason: "Evicted"})
	m.PutStop(pod.StopRequest{GraceSeconds: &short, Reason: "Preempted"})
	m.PutStop(pod.StopRequest{GraceSeconds: &long})
	require.Equal(t, &pod.StopRequest{GraceSeconds: &short, Delete: true, Reason: "Evicted"}, m.take().stop)
	m.PutStop(pod.StopRequest{})
	require.Equal(t, &pod.StopRequest{}, m.take().stop)
}

// TestCritical: what must be on disk before the runtime is asked to act on it.
func TestCritical(t *testing.T) {
	container := func(c pod.ContainerRecord) pod.Record {
		return pod.Record{Containers: map[string]pod.ContainerRecord{"a": c}}
	}
	for name, after := range map[string]pod.Record{
		"the phase":                 {Phase: pod.PhaseTerminating},
		"a stop":                    {Stop: &pod.Stop{}},
		"the outcome":               {Outcome: &pod.Outcome{}},
		"a restart of all":          {RestartAll: &pod.RestartAll{}},
		"an end":                    container(pod.ContainerRecord{Exit: &pod.Exit{}}),
		"a replacement":             container(pod.ContainerRecord{Replacing: "x"}),
		"a number to be used again": container(pod.ContainerRecord{Retry: true}),
		"a delay":                   container(pod.ContainerRecord{Backoff: pod.Backoff{Delay: time.Second}}),
	} {
		require.True(t, critical(pod.Record{}, after), name)
		require.False(t, critical(after, after), name)
	}
	for name, after := range map[string]pod.Record{
		"attempts":    container(pod.ContainerRecord{Attempts: 4}),
		"a failure":   container(pod.ContainerRecord{Failure: &pod.Failure{}}),
		"the status":  {Status: &corev1.PodStatus{}},
		"the sandbox": {Sandbox: pod.SandboxRecord{Attempts: 2, IPs: []string{"10.0.0.1"}}},
	} {
		require.False(t, critical(pod.Record{}, after), name)
	}
}
