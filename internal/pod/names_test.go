package pod_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// TestEnumText names every value of every enum (R29), and one beyond.
func TestEnumText(t *testing.T) {
	texts := func(n int, of func(int) fmt.Stringer) []string {
		var out []string
		for i := range n {
			out = append(out, of(i).String())
		}
		return out
	}
	require.Equal(t, []string{"unknown", "init", "sidecar", "normal", "ephemeral", "unknown"},
		texts(6, func(i int) fmt.Stringer { return pod.Kind(i) }))
	require.Equal(t, []string{"unknown", "created", "running", "exited", "unknown"},
		texts(5, func(i int) fmt.Stringer { return pod.State(i) }))
	require.Equal(t, []string{"syncing", "terminating", "terminated", "finished", "phase(4)"},
		texts(5, func(i int) fmt.Stringer { return pod.Phase(i) }))
	require.Equal(t, []string{"none", "passed", "failed", "none"},
		texts(4, func(i int) fmt.Stringer { return pod.Verdict(i) }))
	require.Equal(t, []string{
		"none", "unknown", "notfound", "exists", "unavailable", "deadline", "cancelled", "invalid",
		"unauthorized", "network", "conflict", "unknown",
	}, texts(12, func(i int) fmt.Stringer { return pod.Class(i) }))
	require.Equal(t, "conflict", pod.ClassConflict.String(), "the last class has a name")
}

func TestParseKind(t *testing.T) {
	for k := pod.KindUnknown; k <= pod.KindEphemeral; k++ {
		require.Equal(t, k, pod.ParseKind(k.String()))
	}
	require.Equal(t, pod.KindUnknown, pod.ParseKind("main"))
}

// TestPhaseMovesOneWay holds PW-2.
func TestPhaseMovesOneWay(t *testing.T) {
	phases := []pod.Phase{pod.PhaseSyncing, pod.PhaseTerminating, pod.PhaseTerminated, pod.PhaseFinished}
	for i, from := range phases {
		for j, to := range phases {
			if j == i || j == i+1 {
				require.Equal(t, to, from.To(to))
				continue
			}
			require.PanicsWithValue(t, fmt.Sprintf("PW-2: illegal transition %v -> %v", from, to), func() { from.To(to) })
		}
	}
}

func TestKey(t *testing.T) {
	a := pod.Key{Namespace: "a", Name: "z"}
	require.Equal(t, "a/z", a.String())
	require.Negative(t, a.Compare(pod.Key{Namespace: "b", Name: "a"}))
	require.Positive(t, a.Compare(pod.Key{Namespace: "a", Name: "y"}))
	require.Zero(t, a.Compare(pod.Key{Namespace: "a", Name: "z"}))
	p := userPod()
	require.Equal(t, pod.Key{Namespace: "default", Name: "shop"}, pod.KeyOf(p))
	p.UID = "u"
	p.Annotations = map[string]string{pod.SourceAnnotation: "file", pod.OriginAnnotation: "/etc/x.yaml"}
	require.Equal(t, "file", pod.Source(p))
	require.Equal(t, "/etc/x.yaml", pod.Origin(p))
	require.EqualValues(t, "u", pod.Instance{Pod: p}.UID())
}

// TestErrorClass holds that a class and a reason are found through wrapping.
func TestErrorClass(t *testing.T) {
	cause := errors.New("no such image")
	err := fmt.Errorf("cannot start web: %w", pod.Errorf(pod.ClassNotFound, "ErrImagePull", "cannot pull %q: %w", "web:1", cause))
	require.Equal(t, pod.ClassNotFound, pod.ClassOf(err))
	require.Equal(t, "ErrImagePull", pod.ReasonOf(err, "Other"))
	require.ErrorIs(t, err, cause)
	require.Equal(t, `cannot start web: cannot pull "web:1": no such image`, err.Error())

	require.Equal(t, pod.ClassNone, pod.ClassOf(nil))
	require.Equal(t, pod.ClassUnknown, pod.ClassOf(cause))
	require.Equal(t, "Other", pod.ReasonOf(cause, "Other"))
	require.Equal(t, "Other", pod.ReasonOf(pod.Errorf(pod.ClassDeadline, "", "late"), "Other"))
}
