package sim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// generatorVersion is part of the meaning of a seed: it grows with every change
// of what is drawn from the seed. Seeds of an older version are only history.
const generatorVersion = 5

// Seeds that are run when none are asked for: few enough for every test run, and
// always the same.
const (
	defaultSeeds = 60
	firstSeed    = 1
)

var (
	seedCount       = flag.Int("sim.n", 0, "number of histories; 0 means the default number")
	seedFirst       = flag.Uint64("sim.seed", 0, "seed of the first history; 0 means the fixed default (for random ones: -sim.seed=$RANDOM$RANDOM)")
	transcriptLines = flag.Int("sim.lines", 45, "how many lines of its history a failure prints")
)

// TestSimulator runs histories. On a failure the first line says how to run the
// same history again.
func TestSimulator(t *testing.T) {
	n, first := *seedCount, *seedFirst
	if n <= 0 {
		n = defaultSeeds
	}
	if first == 0 {
		first = firstSeed
	}
	var seeds []uint64
	if *seedFirst == 0 {
		seeds = knownSeeds(t)
	}
	for i := range n {
		seeds = append(seeds, first+uint64(i))
	}
	const lanes = 4
	t.Run("histories", func(t *testing.T) {
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				for i := lane; i < len(seeds); i += lanes {
					runSeed(t, seeds[i])
				}
			})
		}
	})
}

func runSeed(t *testing.T, seed uint64) {
	t.Helper()
	if text, w := history(seed); text != "" {
		t.Errorf("seed %d fails: go test ./internal/sim -run '^TestSimulator$' -sim.n=1 -sim.seed=%d -v\n%s\n%s", seed, seed, text, w.transcript())
	}
}

// knownSeeds are those that found something once, see testdata/seeds.
func knownSeeds(t *testing.T) []uint64 {
	t.Helper()
	files, err := filepath.Glob("testdata/seeds/*.txt")
	require.NoError(t, err)
	var seeds []uint64
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		current := false
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if version, ok := strings.CutPrefix(line, "# generator "); ok {
				current = version == strconv.Itoa(generatorVersion)
			}
			if line == "" || strings.HasPrefix(line, "#") || !current {
				continue
			}
			seed, err := strconv.ParseUint(strings.Fields(line)[0], 10, 64)
			require.NoError(t, err, "%s: %s", name, line)
			seeds = append(seeds, seed)
		}
		require.NoError(t, f.Close())
	}
	return seeds
}

// history plays one seed from the first pod to the last and says what went
// wrong, if anything did.
func history(seed uint64) (failure string, w *world) {
	w = newWorld(seed)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case violation:
			failure = r.text
		default:
			failure = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w.play()
	return "", w
}

// play is the course of every history: pods and misfortune, then quiet, in which
// everything has to come right, then the end of all pods.
func (w *world) play() {
	w.startAgent()
	for range 1 + w.rng.IntN(2) {
		w.chaos.add()
	}
	w.chaos.start()
	w.run(w.between(3*time.Minute, 25*time.Minute))
	w.chaos.stop()
	w.run(w.now + calmBound)
	w.goals()
	for _, key := range sortedByKey(w.user.wanted) {
		w.user.remove(key, nil)
	}
	w.run(w.now + endBound)
	w.nothingLeft()
}
