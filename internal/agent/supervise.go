package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// loopStuck is how long a main loop may be in one round before it counts as
// stuck, so that the watchdog of the service manager ends the process. The loops
// go round every ten seconds at least. What they wait for is a disk that writes,
// or a directory that is removed: after two minutes of that the kernel itself
// calls a task hung. A bound of the order of the watchdog's interval would end
// agents on slow disks for nothing, since the next one has the same disk; the
// five minutes of livez (C-11) would leave the pods alone for longer than needed.
const loopStuck = 2 * time.Minute

// goneRound notes that syncLoop has finished a round. The time is monotonic:
// neither a step of the clock nor a suspended machine makes a loop look stuck.
func (a *Agent) goneRound() { a.beat.Store(int64(time.Since(a.began))) }

// sinceRound returns how long syncLoop has been in its round.
func (a *Agent) sinceRound() time.Duration { return time.Since(a.began) - time.Duration(a.beat.Load()) }

// Stalled names a main loop that is stuck, and for how long it has been; an empty
// name means that all are alive. None of them calls the runtime, so one that
// hangs or is absent does not count.
func (a *Agent) Stalled() (loop string, since time.Duration) {
	if since := a.sinceRound(); since > loopStuck {
		return "syncLoop", since
	}
	if looped := a.pleg.Health().Looped; !looped.IsZero() && time.Since(looped) > loopStuck {
		return "pleg", time.Since(looped)
	}
	return "", 0
}

// Periods of a Narrator.
const (
	askPeriod    = 10 * time.Second // between calls of the runtime
	absentPeriod = time.Minute      // between log lines about its absence
)

// Narrator says in one line what the agent is doing, and logs that the runtime
// is absent. It belongs to one goroutine.
type Narrator struct {
	a        *Agent
	asked    time.Time // when the runtime was last asked; zero to ask at once
	answered string    // what it said of itself
	absent   error     // why it could not be asked, nil when it could
	logged   time.Time // when its absence was last logged; zero while it is there
}

// Narrator returns a new narrator.
func (a *Agent) Narrator() *Narrator { return &Narrator{a: a} }

// Line returns the line, such as "12 pods, runtime ready". It costs next to
// nothing, but for one call of the runtime every ten seconds, which may take
// callTimeout. That the runtime has gone is known sooner, from the PLEG.
func (n *Narrator) Line(ctx context.Context) string {
	n.look(ctx, time.Now())
	n.log(time.Now())
	if n.absent != nil {
		return "waiting for runtime at " + n.a.cfg.ContainerRuntimeEndpoint
	}
	pods := n.a.board.count()
	if pods == 1 {
		return "1 pod, " + n.answered
	}
	return fmt.Sprintf("%d pods, %s", pods, n.answered)
}

func (n *Narrator) look(ctx context.Context, now time.Time) {
	h := n.a.pleg.Health()
	if h.Err != nil {
		n.asked, n.absent = time.Time{}, h.Err
		return
	}
	if !n.asked.IsZero() && now.Sub(n.asked) < askPeriod {
		return
	}
	n.asked = now
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := n.a.runtime.Status(ctx)
	switch n.absent = err; {
	case err != nil:
		n.asked = time.Time{} // ask again soon
	case !st.RuntimeReady:
		n.answered = "runtime not ready: " + st.RuntimeMessage
	case !st.NetworkReady:
		n.answered = "runtime ready, network not ready: " + st.NetworkMessage
	default:
		n.answered = "runtime ready"
	}
}

// log tells of the absence at once and then every minute, and of its end.
func (n *Narrator) log(now time.Time) {
	endpoint := n.a.cfg.ContainerRuntimeEndpoint
	switch {
	case errors.Is(n.absent, context.Canceled): // the agent leaves
	case n.absent != nil && (n.logged.IsZero() || now.Sub(n.logged) >= absentPeriod):
		klog.ErrorS(n.absent, "Waiting for the container runtime", "endpoint", endpoint)
		n.logged = now
	case n.absent == nil && !n.logged.IsZero():
		klog.InfoS("The container runtime answers", "endpoint", endpoint)
		n.logged = time.Time{}
	}
}
