package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"nodelet.dev/nodelet/internal/pod"
)

// moment is virtual time since the start of the history. It never steps.
type moment = time.Duration

// epoch is where the wall clock of the machine stands at moment zero.
var epoch = time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)

// world holds everything of one history.
type world struct {
	rng    *rand.Rand
	now    moment
	seq    uint64
	events eventHeap
	steps  int

	stepped time.Duration // the wall clock's distance from where it started
	jumps   []moment      // when it stepped
	boots   int
	booted  moment

	machine *machine
	disk    *disk
	agent   *agent // nil while it is down
	gen     int    // which agent process this is
	user    *user
	truth   *truth
	chaos   *chaos

	lines []string
}

// violation is an invariant that did not hold. It travels as a panic.
type violation struct{ text string }

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, generatorVersion)), boots: 1} //nolint:gosec // a history has to be repeatable
	w.machine = &machine{w: w, names: map[string]string{}, starts: map[string]int{}, present: map[string]bool{}, pulled: map[string]bool{}}
	w.disk = &disk{w: w, instances: map[string]stored{}}
	w.user = &user{w: w, wanted: map[pod.Key]*manifest{}}
	w.truth = newTruth(w)
	w.chaos = &chaos{w: w}
	return w
}

// at runs f at a moment.
func (w *world) at(t moment, f func()) {
	w.seq++
	heap.Push(&w.events, event{at: max(t, w.now), seq: w.seq, run: f})
}

func (w *world) after(d time.Duration, f func()) { w.at(w.now+d, f) }

// run plays events until the moment, checking after each one.
func (w *world) run(until moment) {
	for len(w.events) > 0 && w.events[0].at <= until {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
		w.truth.check()
		w.steps++
	}
	w.now = until
}

// stamp is now on the clocks that the agent reads.
func (w *world) stamp() pod.Stamp {
	return pod.Stamp{Wall: w.wall(), Boot: w.now - w.booted, BootID: fmt.Sprintf("boot-%d", w.boots)}
}

func (w *world) wall() time.Time { return epoch.Add(w.now + w.stepped) }

// jumped says whether the wall clock stepped between two moments.
func (w *world) jumped(from, to moment) bool {
	return slices.ContainsFunc(w.jumps, func(at moment) bool { return from <= at && at <= to })
}

// steady stands in for the monotonic reading of observations.
func (w *world) steady() time.Time { return epoch.Add(w.now) }

func (w *world) logf(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf("%12.3fs ", w.now.Seconds())+fmt.Sprintf(format, args...))
	if keep := *transcriptLines; len(w.lines) > 4*keep {
		w.lines = append(w.lines[:0], w.lines[len(w.lines)-keep:]...)
	}
}

func (w *world) transcript() string {
	lines := w.lines
	if keep := *transcriptLines; len(lines) > keep {
		lines = lines[len(lines)-keep:]
	}
	return strings.Join(lines, "\n")
}

func (w *world) violate(row, format string, args ...any) {
	panic(violation{row + ": " + fmt.Sprintf(format, args...)})
}

// chance is true with probability p.
func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// between draws a duration in whole microseconds.
func (w *world) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return (low + time.Duration(w.rng.Int64N(int64(high-low)))).Truncate(time.Microsecond)
}

func pick[T any](w *world, list []T) T { return list[w.rng.IntN(len(list))] }

type event struct {
	at  moment
	seq uint64
	run func()
}

type eventHeap []event

func (h eventHeap) Len() int      { return len(h) }
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || (h[i].at == h[j].at && h[i].seq < h[j].seq)
}
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}
