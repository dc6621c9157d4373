package plan_test

import (
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts holds Compute against the scenarios in testdata. "pod" begins
// a new one; what the other commands do stands at world.command. Run the test
// with -rewrite to write down what it does now, and review the difference.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd == "pod" {
				w = newWorld(parsePod(t, d.Input))
				return ""
			}
			return w.command(t, d)
		})
	})
}
