package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

func (m *machine) stopSandbox(s *scope, uid types.UID, id string, reply func(error)) {
	m.issue(s, request{
		what: "stop sandbox " + id, uid: uid, timeout: callTimeout,
		takes: m.w.between(5*time.Millisecond, 200*time.Millisecond),
		effect: func(_ *call, finish func(error)) {
			box := m.sandbox(id)
			if box == nil {
				finish(nil)
				return
			}
			m.killIn(id, func() {
				m.lose(box)
				finish(nil)
			})
		},
		reply: reply,
	})
}

// killIn kills every container of a sandbox and goes on when they are dead.
func (m *machine) killIn(id string, then func()) {
	latest := m.w.now
	for _, c := range m.of(id) {
		if c.alive || c.State == pod.StateUnknown {
			latest = max(latest, c.stuck)
			if c.State == pod.StateUnknown {
				m.reap(c)
				continue
			}
			m.kill(c)
		}
	}
	m.w.at(latest, then)
}

// lose makes a sandbox not ready.
func (m *machine) lose(box *sandbox) {
	if !box.Ready {
		return
	}
	box.Ready = false
	box.IPs = nil
	m.w.logf("  sandbox %s of %s is not ready any more", box.ID, box.UID)
	m.w.truth.dirty = true
	m.hint(box.UID)
}

func (m *machine) removeSandbox(s *scope, uid types.UID, id string, reply func(error)) {
	m.issue(s, request{
		what: "remove sandbox " + id, uid: uid, timeout: callTimeout,
		effect: func(_ *call, finish func(error)) {
			box := m.sandbox(id)
			if box == nil {
				finish(nil)
				return
			}
			m.killIn(id, func() {
				for _, c := range m.of(id) {
					if err := m.drop(c); err != nil {
						finish(err)
						return
					}
				}
				m.dropSandbox(box)
				finish(nil)
			})
		},
		reply: reply,
	})
}

func (m *machine) dropSandbox(box *sandbox) {
	m.sandboxes = slices.DeleteFunc(m.sandboxes, func(o *sandbox) bool { return o == box })
	delete(m.names, box.name)
	m.w.truth.dirty = true
	m.hint(box.UID)
}

func (m *machine) pullImage(s *scope, uid types.UID, image string, reply func(ref string, err error)) {
	takes := m.w.between(20*time.Millisecond, 3*time.Second)
	if m.present[image] {
		takes = time.Millisecond
	} else if strings.HasPrefix(image, "slow") {
		takes = m.w.between(10*time.Second, 100*time.Second)
	}
	m.issue(s, request{
		what: "pull image " + image, uid: uid, timeout: 10 * time.Minute, takes: takes,
		effect: func(_ *call, finish func(error)) {
			if strings.HasPrefix(image, "bad") {
				finish(pod.Errorf(pod.ClassNotFound, "ErrImagePull", "cannot pull image %s: there is none", image))
				return
			}
			if strings.HasPrefix(image, "flaky") && m.w.chaos.on && m.w.chance(0.7) {
				finish(pod.Errorf(pod.ClassUnavailable, "RegistryUnavailable", "cannot pull image %s: the registry is away", image))
				return
			}
			m.present[image] = true
			finish(nil)
		},
		reply: func(err error) { reply("ref-"+image, err) },
	})
}

// inspect answers with what the runtime says of a pod. Sandboxes and containers
// are read at two moments, in either order, as two lists are.
func (m *machine) inspect(s *scope, uid types.UID, timeout time.Duration, reply func(pod.Observation, error)) {
	o := pod.Observation{TakenAt: m.w.steady()}
	m.issue(s, request{
		what: fmt.Sprintf("inspect %s", uid), uid: uid, timeout: timeout,
		takes: m.w.between(100*time.Microsecond, 3*time.Millisecond),
		effect: func(_ *call, finish func(error)) {
			parts := []func(){
				func() { o.Sandboxes = m.sandboxesOf(uid) },
				func() { o.Containers = m.containersOf(uid) },
			}
			first := m.w.rng.IntN(2)
			parts[first]()
			m.w.after(m.w.between(0, 2*time.Millisecond), func() {
				parts[1-first]()
				o.Sort()
				finish(nil)
			})
		},
		reply: func(err error) { reply(o, err) },
	})
}

func (m *machine) sandboxesOf(uid types.UID) []pod.Sandbox {
	var list []pod.Sandbox
	for _, s := range m.sandboxes {
		if s.UID == uid {
			list = append(list, s.Sandbox)
		}
	}
	return list
}

func (m *machine) containersOf(uid types.UID) []pod.Container {
	var list []pod.Container
	for _, c := range m.containers {
		if c.uid == uid {
			list = append(list, c.Container)
		}
	}
	return list
}

// snapshot is what the runtime says of a pod at this very moment.
func (m *machine) snapshot(uid types.UID) pod.Observation {
	o := pod.Observation{TakenAt: m.w.steady(), Sandboxes: m.sandboxesOf(uid), Containers: m.containersOf(uid)}
	o.Sort()
	return o
}

// uids lists every pod of which the runtime knows something.
func (m *machine) uids() []types.UID {
	var list []types.UID
	for _, s := range m.sandboxes {
		list = append(list, s.UID)
	}
	for _, c := range m.containers {
		list = append(list, c.uid)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// hint is what the event stream says: something happened to a pod.
func (m *machine) hint(uid types.UID) {
	if m.w.agent != nil && !m.down && !m.w.chaos.eventLost() {
		m.w.agent.hinted(uid)
	}
}

// reboot takes everything down at once.
func (m *machine) reboot(loseRecords bool) {
	for _, c := range slices.Clone(m.containers) {
		if c.alive {
			c.stuck = 0
			m.end(c, 255, "Unknown")
		} else if c.State == pod.StateUnknown {
			c.State = pod.StateExited
		}
	}
	for _, s := range m.sandboxes {
		m.lose(s)
	}
	for _, c := range m.calls {
		if !c.landed && !c.dropped {
			c.dropped = true
			c.release()
		}
		c.dropped = true
		c.replied = true
	}
	m.calls = nil
	if !loseRecords {
		return
	}
	for _, c := range slices.Clone(m.containers) {
		if m.w.chance(0.5) {
			_ = m.drop(c) // nothing is alive, so this cannot fail
		}
	}
	for _, s := range slices.Clone(m.sandboxes) {
		if len(m.of(s.ID)) == 0 && m.w.chance(0.5) {
			m.dropSandbox(s)
		}
	}
}
