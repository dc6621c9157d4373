package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A seed is worth something only if it gives the same history each time.
func TestHistoryRepeats(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		_, first := history(seed)
		_, second := history(seed)
		require.Equal(t, first.lines, second.lines, "seed %d", seed)
		require.Equal(t, first.steps, second.steps, "seed %d", seed)
	}
}

// The programs of containers are written in their arguments.
func TestParseStep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]step{
		"5s:3":         {after: mustDuration("5s"), code: 3, dies: mustDuration("20ms"), diesWith: 143},
		"forever":      {forever: true, dies: mustDuration("20ms"), diesWith: 143},
		"forever!":     {forever: true, deaf: true, dies: mustDuration("20ms"), diesWith: 143},
		"forever~1s=0": {forever: true, dies: mustDuration("1s")},
		"2s:0~3s":      {after: mustDuration("2s"), dies: mustDuration("3s"), diesWith: 143},
	} {
		require.Equal(t, want, parseStep(text), text)
	}
}
