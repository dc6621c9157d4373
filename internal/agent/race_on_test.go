//go:build race

package agent

// weekDays is how long TestWeekOfRestarts lasts under the race detector, which
// makes each of its days ten times as dear; the real week runs without it.
const weekDays = 1
