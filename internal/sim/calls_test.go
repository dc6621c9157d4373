package sim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// How long the client of the runtime waits for an answer.
const (
	callTimeout    = 2 * time.Minute
	sandboxTimeout = 4 * time.Minute
	inspectTimeout = 15 * time.Second
)

// scope is what a context is to real code: cancelling it ends the calls in it.
type scope struct {
	cancelled bool
	calls     []*call
}

func (s *scope) cancel() {
	if s.cancelled {
		return
	}
	s.cancelled = true
	for _, c := range s.calls {
		c.giveUp(pod.ClassCancelled)
	}
}

// call is one request to the runtime.
type call struct {
	m     *machine
	what  string
	uid   types.UID
	reply func(error)
	// replied says that the caller has its answer or is gone.
	replied bool
	// dropped says that the request will have no effect any more.
	dropped bool
	landed  bool
	// release gives back what the request reserved when it is dropped.
	release func()
	lose    bool // the answer gets lost
}

// request is what a call wants of the runtime.
type request struct {
	what    string
	uid     types.UID
	timeout time.Duration
	// arrive checks and reserves at once; it may be nil.
	arrive func() (release func(), err error)
	// takes is how long the runtime works before the effect.
	takes time.Duration
	// effect happens at one moment; it answers through finish, now or later.
	effect func(c *call, finish func(error))
	reply  func(error)
}

// issue sends a request. Exactly one answer comes back, unless the agent dies.
func (m *machine) issue(s *scope, r request) {
	w := m.w
	c := &call{m: m, what: r.what, uid: r.uid, release: func() {}}
	c.reply = func(err error) {
		if err != nil {
			w.logf("  %s: %v", r.what, err)
		}
		r.reply(err)
	}
	if s.cancelled {
		w.after(0, func() { c.answer(callError(pod.ClassCancelled, r.what)) })
		m.calls = append(m.calls, c)
		return
	}
	s.calls = append(s.calls, c)
	m.calls = append(m.calls, c)
	w.after(w.between(0, 2*time.Millisecond), func() { c.arrived(r) })
	w.after(r.timeout, func() { c.giveUp(pod.ClassDeadline) })
}

// arrived decides what becomes of a request.
func (c *call) arrived(r request) {
	m, w := c.m, c.m.w
	if c.dropped {
		return
	}
	if m.down {
		c.dropped = true
		c.answer(callError(pod.ClassUnavailable, c.what))
		return
	}
	fault := w.chaos.fault()
	if fault != faultNone {
		w.logf("  fault on %s: %v", c.what, fault)
		w.truth.faulted(c.uid, callTimeout)
	}
	if fault == faultBefore {
		c.dropped = true
		class := pick(w, []pod.Class{pod.ClassUnknown, pod.ClassUnavailable, pod.ClassDeadline})
		w.after(w.between(0, 3*time.Second), func() { c.answer(callError(class, c.what)) })
		return
	}
	if r.arrive != nil {
		release, err := r.arrive()
		if err != nil {
			c.dropped = true
			c.answer(err)
			return
		}
		c.release = release
	}
	takes := r.takes
	switch fault {
	case faultLost:
		c.lose = true
	case faultLate:
		w.after(w.between(0, 5*time.Second), func() {
			c.answer(callError(pick(w, []pod.Class{pod.ClassDeadline, pod.ClassUnavailable}), c.what))
		})
		takes = w.between(time.Second, 90*time.Second)
	case faultHang:
		if w.chance(0.5) {
			return // nothing happens until the caller gives up
		}
		takes = w.between(time.Minute, 3*time.Minute)
	default:
	}
	w.after(takes, func() { c.land(r) })
}

func (c *call) land(r request) {
	if c.dropped {
		return
	}
	c.landed = true
	r.effect(c, func(err error) {
		if c.lose {
			err = callError(pick(c.m.w, []pod.Class{pod.ClassDeadline, pod.ClassUnavailable, pod.ClassUnknown}), c.what)
		}
		c.m.w.after(c.m.w.between(0, time.Millisecond), func() { c.answer(err) })
	})
}

func (c *call) answer(err error) {
	if c.replied {
		return
	}
	c.replied = true
	c.reply(err)
}

// giveUp is the caller's side of an end of waiting. The runtime may notice, and
// drop the request, or go on with it.
func (c *call) giveUp(class pod.Class) {
	if c.replied {
		return
	}
	c.dropMaybe()
	c.m.w.after(0, func() { c.answer(callError(class, c.what)) })
}

func (c *call) dropMaybe() {
	if !c.landed && !c.dropped && c.m.w.chance(0.5) {
		c.dropped = true
		c.release()
	} else if c.landed && c.m.w.chance(0.5) {
		c.dropped = true // a wait in the runtime ends here
	}
}

// forsake ends all calls without an answer: their caller is dead.
func (m *machine) forsake() {
	for _, c := range m.calls {
		if !c.replied {
			c.replied = true
			c.dropMaybe()
		}
	}
	m.calls = nil
}

// interrupt fails all calls in flight: the runtime went away.
func (m *machine) interrupt() {
	calls := m.calls
	m.calls = nil
	for _, c := range calls {
		if !c.replied {
			c.giveUp(pod.ClassUnavailable)
		}
	}
}

func callError(class pod.Class, what string) error {
	return pod.Errorf(class, "", "cannot %s: %v", what, class)
}
