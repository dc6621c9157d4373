package pod_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/pod"
)

func noon() time.Time { return time.Date(2031, 5, 4, 12, 0, 0, 0, time.UTC) }

func stamp(boot string, wall, up time.Duration) pod.Stamp {
	return pod.Stamp{Wall: noon().Add(wall), Boot: up, BootID: boot}
}

// TestStampDistance holds INV-14: within one boot only the time since boot
// counts, across boots the wall clock does, and nothing is ever negative.
func TestStampDistance(t *testing.T) {
	now := stamp("a", 0, time.Hour)
	for _, c := range []struct {
		name         string
		then         pod.Stamp
		since, until time.Duration
	}{
		{"now", now, 0, 0},
		{"earlier in this boot", now.Add(-time.Minute), time.Minute, 0},
		{"later in this boot", now.Add(time.Minute), 0, time.Minute},
		{"the wall clock went back since", stamp("a", 2*time.Hour, 59*time.Minute), time.Minute, 0},
		{"the wall clock went forth since", stamp("a", -2*time.Hour, 59*time.Minute), time.Minute, 0},
		{"before a reboot", stamp("b", -10*time.Minute, 400*time.Hour), 10 * time.Minute, 0},
		{"a deadline from before the reboot", stamp("b", 10*time.Minute, 400*time.Hour), 0, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.since, c.then.Since(now))
			require.Equal(t, c.until, c.then.Until(now))
			require.Equal(t, c.since > 0, c.then.Before(now))
		})
	}
}

func TestStampAddMovesBothClocks(t *testing.T) {
	require.Equal(t, stamp("a", time.Second, time.Hour+time.Second), stamp("a", 0, time.Hour).Add(time.Second))
}

func TestStampIsZero(t *testing.T) {
	require.True(t, pod.Stamp{}.IsZero())
	require.False(t, pod.Stamp{Wall: noon()}.IsZero())
	require.False(t, pod.Stamp{Boot: 1}.IsZero())
	require.False(t, pod.Stamp{BootID: "a"}.IsZero())
}

func TestEarliest(t *testing.T) {
	never, soon, late := pod.Stamp{}, stamp("a", 0, time.Second), stamp("a", 0, time.Minute)
	require.Equal(t, soon, pod.Earliest(soon, late))
	require.Equal(t, soon, pod.Earliest(late, soon))
	require.Equal(t, soon, pod.Earliest(soon, never))
	require.Equal(t, soon, pod.Earliest(never, soon))
	require.Equal(t, never, pod.Earliest(never, never))
}

// TestCarry holds that a reboot moves stamps to the new clock, and that nothing
// else does.
func TestCarry(t *testing.T) {
	now := stamp("b", 10*time.Minute, time.Minute)
	past, ahead := stamp("a", 0, time.Hour), stamp("a", 15*time.Minute, 2*time.Hour)
	require.Equal(t, stamp("b", 0, -9*time.Minute), past.Carry(now))
	require.Equal(t, 10*time.Minute, past.Carry(now).Since(now))
	require.Equal(t, stamp("b", 15*time.Minute, time.Minute), ahead.Carry(now), "what should be past is at most now")

	require.Equal(t, now.Add(5*time.Minute), ahead.CarryAhead(now, time.Hour))
	require.Equal(t, now.Add(time.Second), ahead.CarryAhead(now, time.Second), "no longer than it can be")
	require.Equal(t, now, past.CarryAhead(now, time.Hour), "what has passed is now")

	for _, s := range []pod.Stamp{{}, stamp("b", 0, time.Hour), stamp("b", 0, 0)} {
		require.Equal(t, s, s.Carry(now))
		require.Equal(t, s, s.CarryAhead(now, time.Second))
	}
}

// TestRecordNext holds which number comes next.
func TestRecordNext(t *testing.T) {
	for _, c := range []struct {
		rec  pod.ContainerRecord
		next uint32
	}{
		{pod.ContainerRecord{}, 0},
		{pod.ContainerRecord{Attempts: 3}, 3},
		{pod.ContainerRecord{Attempts: 3, Retry: true}, 2},
		{pod.ContainerRecord{Retry: true}, 0},
	} {
		require.Equal(t, c.next, c.rec.Next())
	}
}

// TestBack translates what the runtime says about the past.
func TestBack(t *testing.T) {
	now := stamp("a", 0, time.Hour)
	require.Equal(t, now.Add(-time.Minute), pod.Back(noon().Add(-time.Minute), now))
	require.Equal(t, now, pod.Back(noon(), now))
	require.Equal(t, now, pod.Back(noon().Add(time.Minute), now), "the future is now")
	require.Equal(t, now, pod.Back(time.Time{}, now), "never is now")
}

func TestStampSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stamp(rapid.String().Draw(t, "boot"), time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "wall")),
			time.Duration(rapid.Int64().Draw(t, "up")))
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var back pod.Stamp
		require.NoError(t, json.Unmarshal(text, &back))
		require.True(t, s.Wall.Equal(back.Wall))
		require.Equal(t, s.Boot, back.Boot)
	})
}

// TestStampOrder holds that Since and Until never both say something, whatever
// the clocks did.
func TestStampOrder(t *testing.T) {
	draw := func(t *rapid.T, label string) pod.Stamp {
		return stamp(rapid.SampledFrom([]string{"a", "b"}).Draw(t, label), time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, label)),
			time.Duration(rapid.Int64Range(0, 1e12).Draw(t, label)))
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		require.GreaterOrEqual(t, a.Since(b), time.Duration(0))
		require.GreaterOrEqual(t, a.Until(b), time.Duration(0))
		require.Zero(t, min(a.Since(b), a.Until(b)))
		require.Equal(t, a.Since(b), b.Until(a))
		require.Equal(t, a.Before(b), b.Until(a) > 0 || a.Since(b) > 0)
	})
}
