package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

func box(id string, attempt uint32, ready bool) pod.Sandbox {
	return pod.Sandbox{ID: id, Attempt: attempt, Ready: ready}
}

func ctr(id, name, sandbox string, attempt uint32, state pod.State) pod.Container {
	return pod.Container{ID: id, Name: name, SandboxID: sandbox, Attempt: attempt, State: state}
}

func all(types.UID) bool { return true }

func TestVictims(t *testing.T) {
	for name, tc := range map[string]struct {
		pod    pod.Observation
		expect Choice
	}{
		"GC-1: one dead instance of each name stays": {
			pod: pod.Observation{
				Sandboxes: []pod.Sandbox{box("s", 0, true)},
				Containers: []pod.Container{
					ctr("a0", "a", "s", 0, pod.StateExited), ctr("a1", "a", "s", 1, pod.StateExited),
					ctr("a2", "a", "s", 2, pod.StateRunning), ctr("b0", "b", "s", 0, pod.StateExited),
				},
			},
			expect: Choice{Containers: []string{"a0"}},
		},
		"GC-2: nothing that may run goes": {
			pod: pod.Observation{
				Sandboxes: []pod.Sandbox{box("s", 0, true)},
				Containers: []pod.Container{
					ctr("a0", "a", "s", 0, pod.StateUnknown), ctr("a1", "a", "s", 1, pod.StateRunning), ctr("b0", "b", "s", 0, pod.StateCreated),
				},
			},
		},
		"a leftover that was created and passed over goes": {
			pod: pod.Observation{
				Sandboxes:  []pod.Sandbox{box("s", 0, true)},
				Containers: []pod.Container{ctr("a0", "a", "s", 0, pod.StateCreated), ctr("a1", "a", "s", 1, pod.StateRunning)},
			},
			expect: Choice{Containers: []string{"a0"}},
		},
		"GC-6: an empty old sandbox goes, the newest stays": {
			pod: pod.Observation{
				Sandboxes:  []pod.Sandbox{box("s0", 0, false), box("s1", 1, false), box("s2", 2, false)},
				Containers: []pod.Container{ctr("a0", "a", "s0", 0, pod.StateExited)},
			},
			expect: Choice{Sandboxes: []string{"s1"}},
		},
		"GC-6: a sandbox goes together with its last container": {
			pod: pod.Observation{
				Sandboxes:  []pod.Sandbox{box("s0", 0, false), box("s1", 1, true)},
				Containers: []pod.Container{ctr("a0", "a", "s0", 0, pod.StateExited), ctr("a1", "a", "s1", 1, pod.StateExited)},
			},
			expect: Choice{Containers: []string{"a0"}, Sandboxes: []string{"s0"}},
		},
		"a sandbox that is ready is not garbage": {
			pod: pod.Observation{Sandboxes: []pod.Sandbox{box("s0", 0, true), box("s1", 1, true)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pod.Sort()
			pods := map[types.UID]pod.Observation{"u": tc.pod}
			require.Equal(t, tc.expect, Victims(pods, all))
			require.Empty(t, Victims(pods, func(types.UID) bool { return false }), "a pod without a worker is left alone")
		})
	}
}

type fakeRuntime struct {
	pods    map[types.UID]pod.Observation
	removed []string
	fail    string
}

func (f *fakeRuntime) List(context.Context) (map[types.UID]pod.Observation, error) {
	return f.pods, nil
}

func (f *fakeRuntime) RemoveContainer(_ context.Context, id string) error {
	f.removed = append(f.removed, id)
	if id == f.fail {
		return errors.New("cannot remove " + id)
	}
	return nil
}

func (f *fakeRuntime) RemoveSandbox(ctx context.Context, id string) error {
	return f.RemoveContainer(ctx, id)
}

func TestRoundGoesOnAfterFailure(t *testing.T) {
	o := pod.Observation{
		Sandboxes:  []pod.Sandbox{box("s0", 0, false), box("s1", 1, true)},
		Containers: []pod.Container{ctr("a0", "a", "s0", 0, pod.StateExited), ctr("a1", "a", "s1", 1, pod.StateExited)},
	}
	o.Sort()
	rt := &fakeRuntime{pods: map[types.UID]pod.Observation{"u": o}, fail: "a0"}
	logs, links := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(logs, "0.log"), nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(logs, "0.log"), filepath.Join(links, "good.log")))
	require.NoError(t, os.Symlink(filepath.Join(logs, "1.log"), filepath.Join(links, "dead.log")))
	require.NoError(t, os.Symlink("/nowhere/1.log", filepath.Join(links, "foreign.log")))
	c := Collector{Runtime: rt, Worked: all, PodLogsDir: logs, LinksDir: links}
	require.ErrorContains(t, c.Round(t.Context()), "cannot remove a0")
	require.Equal(t, []string{"a0", "s0"}, rt.removed)
	left, err := os.ReadDir(links)
	require.NoError(t, err)
	require.Len(t, left, 2, "only the dead link of ours is removed")
}
