package probes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

// TestCount: PRB-12. A letter is a result: s, f, w or ? for none; below it is the
// verdict after it.
func TestCount(t *testing.T) {
	for name, c := range map[string]struct {
		success, failure int32
		held             pod.Verdict
		results, want    string
	}{
		"the first success counts":                {1, 3, pod.NoVerdict, "s", "p"},
		"failures have to come in a row":          {1, 3, pod.Passed, "ffsff", "ppppp"},
		"the third failure in a row":              {1, 3, pod.Passed, "ffff", "ppff"},
		"nothing is known before a threshold":     {2, 2, pod.NoVerdict, "sfsfss", "-----p"},
		"successes have to come in a row":         {3, 1, pod.Failed, "ssfsss", "fffffp"},
		"a warning is a success":                  {2, 1, pod.Failed, "ws", "fp"},
		"what could not be asked counts for none": {1, 3, pod.Passed, "f?f?f", "ppppf"},
		"nor does it make a first result":         {1, 1, pod.NoVerdict, "??s", "--p"},
		"one failure is enough":                   {1, 1, pod.Passed, "fsf", "fpf"},
		"thresholds that are not given":           {0, 0, pod.NoVerdict, "sf", "pf"},
	} {
		t.Run(name, func(t *testing.T) {
			probe := &corev1.Probe{SuccessThreshold: c.success, FailureThreshold: c.failure}
			var counter Counter
			var got strings.Builder
			verdict := c.held
			for _, letter := range c.results {
				result := map[rune]Result{'s': Success, 'f': Failure, 'w': Warning, '?': None}[letter]
				counter, verdict = Count(counter, result, probe, verdict)
				got.WriteString(map[pod.Verdict]string{pod.NoVerdict: "-", pod.Passed: "p", pod.Failed: "f"}[verdict])
			}
			require.Equal(t, c.want, got.String())
		})
	}
}

// A verdict changes to what a whole threshold of results in a row says, and not
// before: held against the whole history.
func TestCountAgainstHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		probe := &corev1.Probe{
			SuccessThreshold: rapid.Int32Range(1, 4).Draw(t, "success"), FailureThreshold: rapid.Int32Range(1, 4).Draw(t, "failure"),
		}
		held := rapid.SampledFrom([]pod.Verdict{pod.NoVerdict, pod.Passed, pod.Failed}).Draw(t, "held")
		var counter Counter
		var history []bool
		for range rapid.IntRange(0, 30).Draw(t, "length") {
			r := rapid.SampledFrom([]Result{None, Success, Failure, Warning}).Draw(t, "result")
			before := held
			counter, held = Count(counter, r, probe, held)
			if r == None {
				require.Equal(t, before, held)
				continue
			}
			history = append(history, r != Failure)
			row := int32(0)
			for i := len(history) - 1; i >= 0 && history[i] == history[len(history)-1]; i-- {
				row++
			}
			want := before
			switch {
			case r == Failure && row >= probe.FailureThreshold:
				want = pod.Failed
			case r != Failure && row >= probe.SuccessThreshold:
				want = pod.Passed
			}
			require.Equal(t, want, held)
		}
	})
}

func TestDecided(t *testing.T) {
	for kind, decided := range map[pod.ProbeKind][]pod.Verdict{
		pod.Startup: {pod.Passed, pod.Failed}, pod.Liveness: {pod.Failed}, pod.Readiness: nil,
	} {
		for _, v := range []pod.Verdict{pod.NoVerdict, pod.Passed, pod.Failed} {
			want := false
			for _, d := range decided {
				want = want || d == v
			}
			require.Equal(t, want, Decided(kind, v), "%s %s", kind, v)
		}
	}
}
