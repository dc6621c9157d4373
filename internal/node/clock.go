package node

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"nodelet.dev/nodelet/internal/pod"
)

// Clock tells the time on clocks that keep their meaning over restarts of the
// agent and steps of the wall clock.
type Clock struct {
	bootID string
	boot   time.Duration // time since boot at start
	start  time.Time     // the same moment, with a monotonic reading
}

// NewClock reads the boot clock once; from then on the monotonic clock is added,
// so that a clock works in a synctest bubble too.
func NewClock(bootID string) (Clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return Clock{}, fmt.Errorf("cannot read the boot clock: %w", err)
	}
	return Clock{bootID: bootID, boot: time.Duration(ts.Nano()), start: time.Now()}, nil
}

// Now returns the current moment.
func (c Clock) Now() pod.Stamp {
	now := time.Now()
	return pod.Stamp{Wall: now.Round(0), Boot: c.boot + now.Sub(c.start), BootID: c.bootID}
}
