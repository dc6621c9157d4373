package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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
			m.present[image], m.pulled[image] = true, true
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

// intrudeSandbox makes another ready sandbox of a pod.
func (m *machine) intrudeSandbox(like *sandbox) {
	one := &sandbox{name: like.name + "'", Sandbox: like.Sandbox}
	one.ID, one.Ready, one.CreatedAt, one.IPs = m.id("s"), true, m.w.wall(), nil
	if m.names[one.name] != "" {
		return
	}
	if m.w.chance(0.5) {
		one.Attempt++
	}
	if !one.HostNetwork {
		one.IPs = []string{fmt.Sprintf("10.0.%d.%d", m.ids/250, m.ids%250)}
	}
	m.names[one.name] = one.ID
	m.sandboxes = append(m.sandboxes, one)
	m.w.logf("somebody makes sandbox %s (attempt %d) of %s", one.ID, one.Attempt, one.UID)
	m.w.truth.faulted(one.UID, 0)
	m.hint(one.UID)
}

// intrudeContainer starts another instance of a container under a free number.
func (m *machine) intrudeContainer(box *sandbox, spec *corev1.Container, p *corev1.Pod) {
	if len(spec.Args) == 0 {
		return // of a pod that was made up from labels
	}
	attempt := uint32(m.w.rng.IntN(4))
	name := fmt.Sprintf("%s_%s_%d", box.UID, spec.Name, attempt)
	if m.names[name] != "" {
		return
	}
	one := &container{uid: box.UID, name: name, spec: spec, key: pod.KeyOf(p), intruder: true, Container: pod.Container{
		ID: m.id("c"), SandboxID: box.ID, Name: spec.Name, Kind: pod.KindNormal, Attempt: attempt, State: pod.StateCreated,
		Image: spec.Image, ImageID: "sha256:" + spec.Image, Hash: pod.ContainerHash(spec), CreatedAt: m.w.wall(),
	}}
	m.names[name] = one.ID
	m.containers = append(m.containers, one)
	m.w.logf("somebody makes %s, attempt %d of %s of %s", one.ID, attempt, spec.Name, box.UID)
	m.w.truth.faulted(box.UID, 0)
	m.w.truth.intruded(one)
	m.begin(one)
}
