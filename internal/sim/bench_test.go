package sim

import "testing"

// BenchmarkSimulator tells how fast histories are played. A step is one event
// with the check of all invariants after it.
func BenchmarkSimulator(b *testing.B) {
	steps, seed := 0, firstSeed
	for b.Loop() {
		text, w := history(uint64(seed))
		if text != "" {
			b.Fatalf("seed %d fails: %s", seed, text)
		}
		steps += w.steps
		seed++
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}
