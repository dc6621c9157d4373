package pod_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

// TestObservationOrder holds CPA-2: by attempt, then by age, then by ID.
func TestObservationOrder(t *testing.T) {
	late := noon().Add(time.Second)
	sandboxes := []pod.Sandbox{
		{ID: "d", Attempt: 3, CreatedAt: noon()},
		{ID: "c", Attempt: 2, CreatedAt: late},
		{ID: "b", Attempt: 2, CreatedAt: noon()},
		{ID: "a", Attempt: 2, CreatedAt: noon()},
	}
	containers := []pod.Container{
		{ID: "e", Name: "web", Attempt: 3, CreatedAt: noon(), SandboxID: "d"},
		{ID: "d", Name: "db", Attempt: 2, CreatedAt: late, SandboxID: "d"},
		{ID: "c", Name: "web", Attempt: 2, CreatedAt: late, SandboxID: "c"},
		{ID: "b", Name: "web", Attempt: 2, CreatedAt: noon(), SandboxID: "c"},
	}
	rapid.Check(t, func(t *rapid.T) {
		o := pod.Observation{
			Sandboxes:  rapid.Permutation(sandboxes).Draw(t, "sandboxes"),
			Containers: rapid.Permutation(containers).Draw(t, "containers"),
		}
		o.Sort()
		require.Equal(t, sandboxes, o.Sandboxes)
		require.Equal(t, containers, o.Containers)
	})
	o := pod.Observation{Sandboxes: sandboxes, Containers: containers}
	newest, ok := o.Newest()
	require.True(t, ok)
	require.Equal(t, "d", newest.ID)
	latest, ok := o.Latest("web")
	require.True(t, ok)
	require.Equal(t, "e", latest.ID)
	latest, ok = o.Latest("db")
	require.True(t, ok)
	require.Equal(t, "d", latest.ID)
	latest, ok = o.LatestIn("c", "web")
	require.True(t, ok)
	require.Equal(t, "c", latest.ID)
	_, ok = o.LatestIn("a", "web")
	require.False(t, ok)
	found, ok := o.ByID("b")
	require.True(t, ok)
	require.Equal(t, "web", found.Name)
	_, ok = o.ByID("z")
	require.False(t, ok)
	_, ok = pod.Observation{}.Newest()
	require.False(t, ok)
}

func TestObservationLive(t *testing.T) {
	for state, live := range map[pod.State]bool{
		pod.StateRunning: true, pod.StateUnknown: true, pod.StateCreated: false, pod.StateExited: false,
	} {
		require.Equal(t, live, pod.Observation{Containers: []pod.Container{{State: state}}}.Live(), "%v", state)
	}
	require.True(t, pod.Observation{Sandboxes: []pod.Sandbox{{}, {Ready: true}}}.Live())
	require.False(t, pod.Observation{Sandboxes: []pod.Sandbox{{}}}.Live())
	require.False(t, pod.Observation{}.Live())
}

func TestObservationIdentity(t *testing.T) {
	id := pod.Identity{UID: "u", GraceSeconds: 3}
	got, ok := pod.Observation{Sandboxes: []pod.Sandbox{{Identity: id}, {}}}.Identity()
	require.True(t, ok)
	require.Equal(t, id, got)
	_, ok = pod.Observation{}.Identity()
	require.False(t, ok)
}
