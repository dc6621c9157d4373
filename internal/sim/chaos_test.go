package sim

import (
	"slices"
	"time"

	"nodelet.dev/nodelet/internal/pod"
)

type fault uint8

const (
	faultNone   fault = iota
	faultBefore       // an error, and no effect
	faultLost         // the effect, and an error
	faultLate         // an error, and the effect later
	faultHang         // no answer until the caller gives up
)

func (f fault) String() string {
	return [...]string{"none", "error before the effect", "effect, answer lost", "effect late", "hangs"}[f]
}

// chaos is everything that goes wrong. While it is off nothing does.
type chaos struct {
	w         *world
	on        bool
	callRate  float64       // faults per call
	eventRate float64       // lost events
	startRate float64       // programs that cannot be executed
	every     time.Duration // mean time between misfortunes
}

func (c *chaos) fault() fault {
	if !c.on || !c.w.chance(c.callRate) {
		return faultNone
	}
	return pick(c.w, []fault{faultBefore, faultBefore, faultLost, faultLost, faultLate, faultLate, faultHang})
}

func (c *chaos) startFails() bool  { return c.on && c.w.chance(c.startRate) }
func (c *chaos) volumeFails() bool { return c.on && c.w.chance(c.callRate/2) }
func (c *chaos) eventLost() bool   { return c.on && c.w.chance(c.eventRate) }

func (c *chaos) eventDelay() time.Duration {
	if c.on && c.w.chance(0.1) {
		return c.w.between(0, 20*time.Second)
	}
	return c.w.between(0, 20*time.Millisecond)
}

// start draws how hard this history is.
func (c *chaos) start() {
	w := c.w
	c.on = true
	c.callRate = pick(w, []float64{0, 0, 0.03, 0.1, 0.25})
	c.eventRate = pick(w, []float64{0, 0.1, 0.5, 1})
	c.startRate = pick(w, []float64{0, 0.05})
	c.every = pick(w, []time.Duration{10 * time.Second, 40 * time.Second, 2 * time.Minute})
	c.next()
}

func (c *chaos) next() {
	c.w.after(c.w.between(time.Millisecond, 2*c.every), func() {
		if !c.on {
			return
		}
		c.strike()
		c.next()
	})
}

// stop ends all misfortune.
func (c *chaos) stop() {
	w := c.w
	c.on = false
	w.logf("the last fault is over")
	w.machine.down = false
	w.disk.full = false
	for _, x := range w.machine.containers {
		x.sick = 0
	}
	w.startAgent()
	w.user.heal()
	w.truth.faultedAll(5 * time.Minute)
}

// strike does one thing to somebody.
func (c *chaos) strike() {
	w := c.w
	type blow struct {
		weight int
		do     func()
	}
	blows := []blow{
		{4, c.killSomebody},
		{2, c.loseSandbox},
		{2, c.stick},
		{2, c.prune},
		{4, c.crash},
		{2, c.reboot},
		{4, c.stepClock},
		{2, c.intrude},
		{2, c.outage},
		{1, c.fillDisk},
		{6, c.edit},
		{3, c.remove},
		{3, c.add},
		{2, c.blur},
		{1, c.loseImage},
	}
	total := 0
	for _, b := range blows {
		total += b.weight
	}
	n := w.rng.IntN(total)
	for _, b := range blows {
		if n -= b.weight; n < 0 {
			b.do()
			return
		}
	}
}

func (c *chaos) aliveOnes() []*container {
	return slices.DeleteFunc(slices.Clone(c.w.machine.containers), func(x *container) bool { return !x.alive })
}

func (c *chaos) killSomebody() {
	list := c.aliveOnes()
	if len(list) == 0 {
		return
	}
	x := pick(c.w, list)
	reason := pick(c.w, []string{"", "OOMKilled"})
	c.w.logf("somebody kills %s (%s)", x.ID, reason)
	c.w.machine.end(x, 137, reason)
}

// loseSandbox kills the process that holds a sandbox; its containers may live.
func (c *chaos) loseSandbox() {
	m := c.w.machine
	if len(m.sandboxes) == 0 {
		return
	}
	box := pick(c.w, m.sandboxes)
	c.w.logf("sandbox %s dies", box.ID)
	c.w.truth.faulted(box.UID, 0)
	if c.w.chance(0.6) {
		for _, x := range m.of(box.ID) {
			m.end(x, 137, "")
		}
	}
	m.lose(box)
}

// stick makes a process that not even SIGKILL ends for a while.
func (c *chaos) stick() {
	list := c.aliveOnes()
	if len(list) == 0 {
		return
	}
	x := pick(c.w, list)
	x.stuck = c.w.now + c.w.between(0, 3*time.Minute)
	c.w.truth.faulted(x.uid, 4*time.Minute)
	c.w.logf("%s cannot be killed until %v", x.ID, x.stuck)
}

// intrude makes a second instance of something: another program that talks to
// the same runtime did it.
func (c *chaos) intrude() {
	w, m := c.w, c.w.machine
	if len(m.sandboxes) == 0 || m.down {
		return
	}
	box := pick(w, m.sandboxes)
	if w.chance(0.4) {
		m.intrudeSandbox(box)
	} else if p := w.truth.of(box.UID).pod; box.Ready && p != nil && len(p.Spec.Containers) > 0 {
		m.intrudeContainer(box, &p.Spec.Containers[w.rng.IntN(len(p.Spec.Containers))], p)
	}
}

// prune removes dead containers that nobody asked to be removed.
func (c *chaos) prune() {
	for _, x := range slices.Clone(c.w.machine.containers) {
		if x.State == pod.StateExited && c.w.chance(0.5) {
			c.w.logf("somebody removes %s", x.ID)
			_ = c.w.machine.drop(x) // it is dead
		}
	}
}

func (c *chaos) crash() {
	w := c.w
	w.killAgent()
	w.truth.faultedAll(2 * time.Minute)
	if w.chance(0.1) {
		w.logf("the state file is lost")
		w.disk.instances = map[string]stored{}
		w.truth.stateLost()
	}
	if w.chance(0.1) {
		c.upgrade()
	}
	w.after(w.between(0, 20*time.Second), w.startAgent)
}

// upgrade makes what runs the work of another version, with other hashes.
func (c *chaos) upgrade() {
	c.w.logf("another version of the agent is installed")
	for _, x := range c.w.machine.containers {
		x.Hash = "v0-" + x.ID
	}
}

func (c *chaos) reboot() {
	w := c.w
	w.killAgent()
	w.logf("the machine reboots")
	w.truth.faultedAll(2 * time.Minute)
	w.machine.reboot(w.chance(0.5))
	w.boots++
	w.booted = w.now
	if w.chance(0.4) {
		c.stepClock() // a machine whose clock forgot the time
	}
	w.truth.rebooted()
	w.after(w.between(time.Second, 20*time.Second), w.startAgent)
}

func (c *chaos) stepClock() {
	w := c.w
	most := pick(w, []time.Duration{30 * time.Second, 10 * time.Minute, 3 * time.Hour})
	by := w.between(0, 2*most) - most
	w.stepped += by
	w.jumps = append(w.jumps, w.now)
	w.logf("the wall clock steps by %v", by)
}

// outage takes the runtime away. Some states may be unknown afterwards.
func (c *chaos) outage() {
	w := c.w
	if w.machine.down {
		return
	}
	w.logf("the runtime goes away")
	w.machine.down = true
	w.machine.interrupt()
	lasts := w.between(100*time.Millisecond, time.Minute)
	w.truth.faultedAll(lasts + time.Minute)
	w.after(lasts, func() {
		w.logf("the runtime is back")
		w.machine.down = false
		for _, x := range w.machine.containers {
			if x.State == pod.StateRunning && c.on && w.chance(0.1) {
				w.logf("the state of %s is unknown", x.ID)
				x.State = pod.StateUnknown
				w.truth.faulted(x.uid, time.Minute)
			}
		}
	})
}

func (c *chaos) fillDisk() {
	w := c.w
	w.disk.full = true
	w.logf("the disk is full")
	w.after(w.between(time.Second, 2*time.Minute), func() {
		w.disk.full = false
		w.logf("the disk has room again")
	})
	w.truth.faultedAll(3 * time.Minute)
}

func (c *chaos) edit() {
	if keys := sortedByKey(c.w.user.wanted); len(keys) > 0 {
		c.w.user.edit(pick(c.w, keys))
	}
}

// remove deletes a pod, at times with a grace, and at times with a shorter one
// soon after.
func (c *chaos) remove() {
	w := c.w
	keys := sortedByKey(w.user.wanted)
	if len(keys) == 0 {
		return
	}
	key := pick(w, keys)
	if w.chance(0.5) {
		w.user.remove(key, nil)
	} else {
		grace := w.rng.Int64N(20)
		w.user.remove(key, &grace)
	}
	if w.chance(0.5) {
		w.after(w.between(0, 10*time.Second), func() {
			if w.user.wanted[key] == nil {
				grace := w.rng.Int64N(4)
				w.user.remove(key, &grace)
			}
		})
	}
}

var podNames = []string{"alpha", "beta", "gamma"}

func (c *chaos) add() {
	name := pick(c.w, podNames)
	if c.w.user.wanted[pod.Key{Namespace: "default", Name: name}] == nil {
		c.w.user.want(c.w.user.invent(name))
	}
}

// blur makes a container look sick to its probes for a while.
func (c *chaos) blur() {
	for _, x := range c.aliveOnes() {
		if pod.HasProbes(x.spec) && c.w.chance(0.5) {
			x.sick = c.w.now + c.w.between(0, 40*time.Second)
			c.w.logf("%s is sick until %v", x.ID, x.sick)
			return
		}
	}
}

func (c *chaos) loseImage() {
	w := c.w
	w.logf("all images are removed")
	w.machine.present = map[string]bool{}
}
