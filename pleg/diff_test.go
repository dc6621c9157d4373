package pleg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/pleg"
)

// observe makes an observation from short texts: "box+" is a ready sandbox,
// "box-" one that is not, "web=running" a container. A container is called like
// its ID without the part behind a dot.
func observe(parts ...string) pod.Observation {
	o := pod.Observation{TakenAt: time.Now()}
	states := map[string]pod.State{
		"created": pod.StateCreated, "running": pod.StateRunning, "exited": pod.StateExited, "unknown": pod.StateUnknown,
	}
	for _, part := range parts {
		if last := len(part) - 1; part[last] == '+' || part[last] == '-' {
			o.Sandboxes = append(o.Sandboxes, pod.Sandbox{ID: part[:last], Ready: part[last] == '+'})
			continue
		}
		for word, state := range states {
			if before, ok := strings.CutSuffix(part, "="+word); ok {
				name, _, _ := strings.Cut(before, ".")
				o.Containers = append(o.Containers, pod.Container{ID: before, Name: name, State: state})
			}
		}
	}
	return o
}

func texts(events []pleg.Event) []string {
	var list []string
	for _, e := range events {
		text := fmt.Sprintf("%s %s %s", e.UID, e.ID, e.Kind)
		if e.Name != "" && e.Name != e.ID {
			text += " of " + e.Name
		}
		list = append(list, text)
	}
	return list
}

// TestDiffPod: PL-2 and PL-3, each pair of states.
func TestDiffPod(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, now []string
		want     []string
	}{
		{name: "nothing at all"},
		{name: "nothing new", old: []string{"box+", "web=running"}, now: []string{"box+", "web=running"}},
		{name: "a pod appears running", now: []string{"box+", "web=running"}, want: []string{"u box started", "u web started"}},
		{name: "a pod appears dead", now: []string{"box-", "web=exited"}, want: []string{"u box died", "u web died"}},
		{name: "created says little", now: []string{"web=created"}, want: []string{"u web changed"}},
		{name: "created to running", old: []string{"web=created"}, now: []string{"web=running"}, want: []string{"u web started"}},
		{name: "created to exited", old: []string{"web=created"}, now: []string{"web=exited"}, want: []string{"u web died"}},
		{name: "running to exited", old: []string{"web=running"}, now: []string{"web=exited"}, want: []string{"u web died"}},
		{name: "running to unknown", old: []string{"web=running"}, now: []string{"web=unknown"}, want: []string{"u web changed"}},
		{name: "unknown to running", old: []string{"web=unknown"}, now: []string{"web=running"}, want: []string{"u web started"}},
		{name: "exited to running", old: []string{"web=exited"}, now: []string{"web=running"}, want: []string{"u web started"}},
		{name: "vanished while running", old: []string{"web=running"}, want: []string{"u web died", "u web removed"}},
		{name: "vanished while created", old: []string{"web=created"}, want: []string{"u web died", "u web removed"}},
		{name: "vanished in an unknown state", old: []string{"web=unknown"}, want: []string{"u web died", "u web removed"}},
		{name: "removed after its end was seen", old: []string{"web=exited"}, want: []string{"u web removed"}},
		{name: "a sandbox stops", old: []string{"box+"}, now: []string{"box-"}, want: []string{"u box died"}},
		{name: "a ready sandbox vanishes", old: []string{"box+"}, want: []string{"u box died", "u box removed"}},
		{name: "a dead sandbox is removed", old: []string{"box-"}, want: []string{"u box removed"}},
		{
			name: "one instance follows another", old: []string{"web.0=running"}, now: []string{"web.0=exited", "web.1=running"},
			want: []string{"u web.0 died of web", "u web.1 started of web"},
		},
		{
			name: "many at once, in order of ID", old: []string{"b=running", "c=exited", "d=running"}, now: []string{"e=running", "b=exited", "a=created", "d=running"},
			want: []string{"u a changed", "u b died", "u c removed", "u e started"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := texts(pleg.DiffPod("u", observe(c.old...), observe(c.now...)))
			require.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

// TestDiff: events of one pod stand together, in order of UID, whatever the maps
// say.
func TestDiff(t *testing.T) {
	old := pleg.Listing{"b": observe("b1=running"), "d": observe("d1=running"), "gone": observe("g=exited")}
	now := pleg.Listing{"c": observe("c1=running", "c0=exited"), "b": observe("b1=exited"), "d": observe("d1=running"), "a": observe("a1=running")}
	want := []string{"a a1 started", "b b1 died", "c c0 died", "c c1 started", "gone g removed"}
	for range 20 {
		require.Equal(t, want, texts(pleg.Diff(old, now)))
	}
	require.Empty(t, pleg.Diff(nil, nil))
	require.Empty(t, pleg.Diff(now, now))
	require.Equal(t, []string{"x x1 started"}, texts(pleg.Diff(pleg.Listing{}, pleg.Listing{types.UID("x"): observe("x1=running")})))
}

func TestKindNames(t *testing.T) {
	for kind, name := range map[pleg.Kind]string{
		pleg.Started: "started", pleg.Died: "died", pleg.Removed: "removed", pleg.Changed: "changed", 0: "nothing",
	} {
		require.Equal(t, name, kind.String())
	}
}
