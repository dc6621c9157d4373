package pleg_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/pleg"
)

type changes = map[types.UID][]string

func noStream(m *machine, _ *pleg.Options) { m.noStream = true }

// TestFirstListing reports every pod that was there before, with all details.
func TestFirstListing(t *testing.T) {
	inBubble(t, func(m *machine, _ *pleg.Options) {
		m.pods["a"] = observe("box+", "web=running")
		m.pods["b"] = observe("bag-")
	}, func(g generator) {
		require.Equal(g, changes{"a": {"a box started", "a web started"}, "b": {"b bag died"}}, g.take())
		require.Equal(g, 1, g.inspected("a"))
		require.NoError(g, g.Check(time.Now()))
	})
}

// TestRelistWithoutStream: PL-1 and C-7. Every second, never two at once, and
// nothing is inspected while nothing changes.
func TestRelistWithoutStream(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.set("a", "box+", "web=running")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(g, changes{"a": {"a box started", "a web started"}}, g.take())
		lists := g.listed()
		time.Sleep(time.Minute)
		require.Equal(g, 60, g.listed()-lists)
		require.Equal(g, 1, g.inspected("a"))
		require.Empty(g, g.take())
		require.False(g, g.Health().Stream)

		// A listing that takes three seconds is followed by the next a second after
		// its end.
		g.change(func() { g.listDelay = 3 * time.Second })
		time.Sleep(5 * time.Second)
		lists = g.listed()
		time.Sleep(40 * time.Second)
		require.Equal(g, 10, g.listed()-lists)
	})
}

// TestRelistWithStream: while the stream stands, the relist is a safety net; it
// finds what no event told (INV-22).
func TestRelistWithStream(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.settle()
		require.True(g, g.Health().Stream)
		lists := g.listed()
		time.Sleep(10 * time.Minute)
		require.Equal(g, 10, g.listed()-lists)
		g.set("lost", "box+")
		time.Sleep(time.Minute)
		require.Equal(g, changes{"lost": {"lost box started"}}, g.take())
	})
}

// TestStreamUpAndDown: after each the pods are listed at once, and the period
// follows.
func TestStreamUpAndDown(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.settle()
		time.Sleep(3 * time.Second)
		lists := g.listed()
		g.set("a", "box+") // untold
		g.change(func() { g.noStream = true })
		g.breaks <- struct{}{}
		synctest.Wait()
		require.Equal(g, lists+1, g.listed())
		require.Equal(g, changes{"a": {"a box started"}}, g.take())
		require.False(g, g.Health().Stream)
		time.Sleep(10500 * time.Millisecond)
		require.Equal(g, lists+11, g.listed())

		g.change(func() { g.noStream = false })
		time.Sleep(3 * time.Second)
		require.True(g, g.Health().Stream)
		lists = g.listed()
		time.Sleep(30 * time.Second)
		require.Equal(g, lists, g.listed())
	})
}

// TestShortStream: a stream that breaks right after it began does not count as
// one, and does not make the PLEG hurry.
func TestShortStream(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		for range 20 {
			g.breaks <- struct{}{} // accepted by the stream that just began
			require.False(g, g.Health().Stream)
		}
		require.InDelta(g, 20, g.listed(), 3)
	})
}

// TestHint: a hint makes the PLEG look at one pod, soon, and only once for many.
func TestHint(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.set("a", "box+")
		g.set("b", "bag+")
		time.Sleep(2 * time.Second)
		g.settle()
		lists, before := g.listed(), g.inspected("a")
		g.set("a", "box+", "web=running")
		for range 10 {
			g.hints <- pleg.Hint{UID: "a"}
		}
		synctest.Wait()
		require.Equal(g, before, g.inspected("a"), "it waits a moment for more")
		time.Sleep(100 * time.Millisecond)
		require.Equal(g, changes{"a": {"a web started"}}, g.take())
		require.Equal(g, before+1, g.inspected("a"))
		require.Equal(g, lists, g.listed())

		// A hint that tells only the ID finds its pod.
		g.set("b", "bag-")
		g.hints <- pleg.Hint{ID: "bag", Urgent: true}
		require.Equal(g, changes{"b": {"b bag died"}}, g.take())

		// State comes from looking: a hint without a change reports nothing.
		g.hints <- pleg.Hint{UID: "b"}
		time.Sleep(time.Second)
		require.Empty(g, g.take())
	})
}

// TestHintOfUnknown: an ID that belongs to nobody known is found by listing,
// and many of them cost few listings.
func TestHintOfUnknown(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.settle()
		lists := g.listed()
		g.set("new", "box+")
		for range 50 {
			g.hints <- pleg.Hint{ID: "who", Urgent: true}
			time.Sleep(20 * time.Millisecond)
		}
		require.Equal(g, changes{"new": {"new box started"}}, g.take())
		require.LessOrEqual(g, g.listed()-lists, 6)
	})
}

// TestUrgentHint is followed up until the runtime shows the end: its events can
// be faster than its answers.
func TestUrgentHint(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.set("a", "box+", "web=running")
		time.Sleep(2 * time.Second)
		g.hints <- pleg.Hint{UID: "a"}
		g.settle()
		before := g.inspected("a")
		g.hints <- pleg.Hint{UID: "a", Urgent: true}
		synctest.Wait()
		require.Equal(g, before+1, g.inspected("a"), "at once")
		time.Sleep(30 * time.Millisecond)
		g.set("a", "box+", "web=exited")
		time.Sleep(50 * time.Millisecond)
		require.Equal(g, changes{"a": {"a web died"}}, g.take())
		seen := g.inspected("a")
		time.Sleep(10 * time.Second)
		require.Equal(g, seen, g.inspected("a"), "no follow-up once it shows")

		// A false alarm is given up after a few looks.
		g.hints <- pleg.Hint{UID: "a", Urgent: true}
		time.Sleep(10 * time.Second)
		require.InDelta(g, 7, g.inspected("a")-seen, 1)
		require.Empty(g, g.take())
	})
}

// TestFailedInspection: PL-4. The pod is looked at again, and the same change is
// reported when that works; pods beside it are not held up.
func TestFailedInspection(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.set("a", "box+", "web=running")
		g.settle()
		g.change(func() { g.refuse["a"] = errors.New("cannot look") })
		g.set("a", "box+", "web=exited")
		g.set("b", "bag+")
		time.Sleep(10 * time.Second)
		require.Equal(g, changes{"b": {"b bag started"}}, g.take())
		require.InDelta(g, 12, g.inspected("a"), 2, "once a second")
		g.change(func() { delete(g.refuse, "a") })
		time.Sleep(1100 * time.Millisecond)
		require.Equal(g, changes{"a": {"a web died"}}, g.take())
		time.Sleep(10 * time.Second)
		require.Empty(g, g.take(), "told once")
	})
}

// TestChangeUndone: a pod that could not be inspected, and by then is as it was,
// has nothing to report.
func TestChangeUndone(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.set("a", "box+")
		g.settle()
		g.change(func() { g.refuse["a"] = errors.New("cannot look") })
		g.set("a", "box-")
		time.Sleep(2 * time.Second)
		g.set("a", "box+")
		g.change(func() { delete(g.refuse, "a") })
		time.Sleep(3 * time.Second)
		require.Empty(g, g.take())
	})
}

// TestFailedListing: listing goes on every second, and what is known stays.
func TestFailedListing(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.set("a", "box+")
		g.settle()
		g.change(func() { g.noStream, g.listErr = true, errors.New("cannot list") })
		g.breaks <- struct{}{}
		lists := g.listed()
		time.Sleep(30 * time.Second)
		require.InDelta(g, 30, g.listed()-lists, 2)
		require.EqualError(g, g.Health().Err, "cannot list")
		require.Empty(g, g.take(), "a failed listing is not an empty one")
		g.change(func() { g.listErr = nil })
		time.Sleep(2 * time.Second)
		require.NoError(g, g.Health().Err)
		require.Empty(g, g.take())
	})
}

// TestGonePod: Q-6. A pod of which nothing is left is reported with an empty
// observation, by hint and by listing, and once.
func TestGonePod(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.set("a", "box+", "web=running")
		g.set("b", "bag-")
		time.Sleep(time.Minute)
		g.settle()
		g.set("a")
		g.hints <- pleg.Hint{ID: "web", Urgent: true}
		synctest.Wait()
		list := g.Changes().Take()
		require.Len(g, list, 1)
		require.Equal(g, types.UID("a"), list[0].UID)
		require.Empty(g, list[0].Observed.Sandboxes)
		require.Empty(g, list[0].Observed.Containers)
		require.False(g, list[0].Observed.TakenAt.IsZero())
		require.Equal(g, []string{"a box died", "a box removed", "a web died", "a web removed"}, texts(list[0].Events))
		g.set("b")
		time.Sleep(2 * time.Minute)
		require.Equal(g, changes{"b": {"b bag removed"}}, g.take())
		time.Sleep(5 * time.Minute)
		require.Empty(g, g.take())
	})
}

// TestHungPod: INV-23 and Q-24. One pod that hangs delays nobody, and the health
// names it.
func TestHungPod(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.change(func() { g.hang["stuck"] = true })
		g.set("stuck", "box+")
		time.Sleep(2 * time.Second)
		for i := range 30 {
			g.set(types.UID(fmt.Sprint("p", i)), "box+")
		}
		time.Sleep(1100 * time.Millisecond)
		require.Len(g, g.take(), 30)
		h := g.Health()
		require.Equal(g, types.UID("stuck"), h.Slow)
		require.InDelta(g, 2, time.Since(h.SlowSince).Seconds(), 1.5)
		time.Sleep(10 * time.Minute)
		require.NoError(g, g.Check(time.Now()), "a hung pod is a fault of its own")
		require.InDelta(g, 6, g.inspected("stuck"), 2, "one at a time")
		require.Equal(g, h.SlowSince, g.Health().SlowSince, "counted from the first try")
		g.change(func() { g.hang["stuck"] = false })
		time.Sleep(5 * time.Minute)
		require.Equal(g, changes{"stuck": {"stuck box started"}}, g.take())
		require.Empty(g, g.Health().Slow)
	})
}

// TestInspectionsAreBounded: many pods that change at once are looked at side by
// side, but only so many.
func TestInspectionsAreBounded(t *testing.T) {
	inBubble(t, func(m *machine, o *pleg.Options) {
		m.took, o.Inspections = time.Second, 4
		for i := range 20 {
			m.pods[types.UID(fmt.Sprint("p", i))] = observe("box+")
		}
	}, func(g generator) {
		time.Sleep(4900 * time.Millisecond)
		synctest.Wait()
		require.Len(g, g.take(), 16)
		time.Sleep(200 * time.Millisecond)
		require.Len(g, g.take(), 4)
		require.Equal(g, 4, g.atOnce)
	})
}

// TestHintDuringInspection: the look may have come too early, so there is
// another.
func TestHintDuringInspection(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.set("a", "box+", "web=running")
		time.Sleep(time.Minute)
		g.settle()
		g.change(func() { g.took = time.Second })
		g.hints <- pleg.Hint{UID: "a", Urgent: true}
		synctest.Wait()
		g.set("a", "box+", "web=exited")
		g.hints <- pleg.Hint{UID: "a", Urgent: true}
		time.Sleep(1500 * time.Millisecond)
		require.Empty(g, g.take())
		time.Sleep(time.Second)
		require.Equal(g, changes{"a": {"a web died"}}, g.take())
	})
}

// TestListingIsOlder: what an inspection saw after a listing began is not
// undone by that listing.
func TestListingIsOlder(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.set("a", "box+", "web=running")
		g.settle()
		g.change(func() { g.listDelay = 10 * time.Second })
		time.Sleep(2 * time.Second) // a listing that saw it running is on its way
		g.set("a", "box+", "web=exited")
		g.change(func() { g.noStream = false })
		time.Sleep(2 * time.Second)
		g.hints <- pleg.Hint{UID: "a", Urgent: true}
		require.Equal(g, changes{"a": {"a web died"}}, g.take())
		time.Sleep(time.Minute)
		require.Empty(g, g.take())
	})
}

// TestRelistOnDemand comes at once, and many wishes cost one listing.
func TestRelistOnDemand(t *testing.T) {
	inBubble(t, nil, func(g generator) {
		g.settle()
		lists := g.listed()
		for range 10 {
			g.Relist()
		}
		synctest.Wait()
		require.Equal(g, lists+1, g.listed())
	})
}

// TestChangesKeepTheNewest: PL-7. Nobody takes for a while: nothing blocks, and
// what is taken then is the newest of each pod with all that happened.
func TestChangesKeepTheNewest(t *testing.T) {
	inBubble(t, noStream, func(g generator) {
		g.set("a", "box+")
		time.Sleep(2 * time.Second)
		g.set("a", "box+", "web=running")
		time.Sleep(2 * time.Second)
		g.set("a", "box+", "web=exited")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		<-g.Changes().Wait()
		list := g.Changes().Take()
		require.Len(g, list, 1)
		require.Equal(g, []string{"a box started", "a web started", "a web died"}, texts(list[0].Events))
		require.Equal(g, observe("web=exited").Containers, list[0].Observed.Containers)
		require.Empty(g, g.Changes().Take())
		select {
		case <-g.Changes().Wait():
			require.Fail(g, "a token without a change")
		default:
		}
	})
}

// TestCheck: PL-9 with its texts.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pleg.New(newMachine(), pleg.Defaults())
		require.EqualError(t, p.Check(time.Now()), "pleg has not listed the pods yet")
	})
	inBubble(t, func(m *machine, _ *pleg.Options) { m.noStream, m.listErr = true, errors.New("nobody answers") }, func(g generator) {
		synctest.Wait()
		require.EqualError(g, g.Check(time.Now()), "pleg has not listed the pods yet: nobody answers")
		g.change(func() { g.listErr = nil; g.hang["stuck"] = true })
		g.set("stuck", "box+")
		time.Sleep(1100 * time.Millisecond)
		require.NoError(g, g.Check(time.Now()))
		g.change(func() { g.listErr = errors.New("nobody answers") })
		time.Sleep(170 * time.Second)
		require.NoError(g, g.Check(time.Now()))
		time.Sleep(20 * time.Second)
		require.ErrorContains(g, g.Check(time.Now()), "pleg was last seen active 3m1")
		require.ErrorContains(g, g.Check(time.Now()), "the threshold is 3m0s; the inspection of pod stuck has been running for")
		g.change(func() { g.listErr = nil })
		time.Sleep(2 * time.Second)
		require.NoError(g, g.Check(time.Now()))
	})
}
