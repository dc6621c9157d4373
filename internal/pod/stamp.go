package pod

import "time"

// Stamp is a moment that keeps its meaning when the agent restarts, the wall
// clock steps or the machine reboots: wall time beside the time since boot.
// Stamps are made by the shell and handed to the pure core as values.
type Stamp struct {
	// Wall is the wall clock, without a monotonic reading.
	Wall time.Time `json:"wall"`
	// Boot is the time since the machine booted.
	Boot time.Duration `json:"boot"`
	// BootID names the boot that Boot counts from.
	BootID string `json:"bootID,omitempty"`
}

// IsZero reports whether the stamp was never set.
func (s Stamp) IsZero() bool { return s.Wall.IsZero() && s.Boot == 0 && s.BootID == "" }

// Since returns how long before now the stamp was: by the boot clock within one
// boot, by the wall clock across boots, and never less than zero.
func (s Stamp) Since(now Stamp) time.Duration { return max(now.diff(s), 0) }

// Until returns how long after now the stamp is; zero when it has passed.
func (s Stamp) Until(now Stamp) time.Duration { return max(s.diff(now), 0) }

// Add returns the stamp moved by d.
func (s Stamp) Add(d time.Duration) Stamp {
	return Stamp{Wall: s.Wall.Add(d), Boot: s.Boot + d, BootID: s.BootID}
}

// Carry returns a stamp of the past on the clock of now's boot. How far back it
// was is what the wall clock says, and never less than nothing. The wall time
// stays as it was told.
func (s Stamp) Carry(now Stamp) Stamp {
	if s.IsZero() || s.BootID == now.BootID {
		return s
	}
	return Stamp{Wall: s.Wall, Boot: now.Boot - s.Since(now), BootID: now.BootID}
}

// CarryAhead is Carry for a stamp of the future that was at most longest away
// when it was made.
func (s Stamp) CarryAhead(now Stamp, longest time.Duration) Stamp {
	if s.IsZero() || s.BootID == now.BootID {
		return s
	}
	return now.Add(min(s.Until(now), longest))
}

// Before reports whether s comes before other.
func (s Stamp) Before(other Stamp) bool { return s.diff(other) < 0 }

// Back translates a wall-clock time that the runtime reported into a stamp, as
// seen at now. A time in the future, which a clock step can produce, becomes now.
func Back(wall time.Time, now Stamp) Stamp {
	if wall.IsZero() || wall.After(now.Wall) {
		return now
	}
	return now.Add(-now.Wall.Sub(wall))
}

func (s Stamp) diff(other Stamp) time.Duration {
	if s.BootID == other.BootID {
		return s.Boot - other.Boot
	}
	return s.Wall.Sub(other.Wall)
}

// Earliest returns the earlier of two stamps, where a zero stamp means never.
func Earliest(a, b Stamp) Stamp {
	switch {
	case a.IsZero():
		return b
	case b.IsZero():
		return a
	case b.Before(a):
		return b
	}
	return a
}
