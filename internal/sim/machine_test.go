package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// machine is the runtime and what runs in it. Its slices are in the order of
// creation, so that a walk over them is repeatable.
type machine struct {
	w          *world
	sandboxes  []*sandbox
	containers []*container
	names      map[string]string // reserved by name; the value is who holds it
	starts     map[string]int    // runs so far, by UID and container name
	present    map[string]bool   // images
	pulled     map[string]bool   // images that were present once
	ids        int
	down       bool
	calls      []*call
}

type sandbox struct {
	pod.Sandbox
	name string
}

// container is an instance. alive is the truth; state is what the runtime says.
type container struct {
	pod.Container
	uid   types.UID
	name  string // reserved
	spec  *corev1.Container
	step  step
	alive bool
	// stuck processes are not killed before that moment.
	stuck moment
	life  int // counts starts and ends, so that timers of another life are void
	run   *run
	key   pod.Key
	// upAt is when its program has started, and sick until when probes fail.
	upAt, sick moment
	asked      map[pod.ProbeKind]*probeActor // probes that are in flight
	// intruder says that somebody else made it.
	intruder bool
}

func (m *machine) id(prefix string) string {
	m.ids++
	return fmt.Sprintf("%s%d", prefix, m.ids)
}

func (m *machine) sandbox(id string) *sandbox {
	for _, s := range m.sandboxes {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func (m *machine) container(id string) *container {
	for _, c := range m.containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// reserve takes a name as a runtime does when a request arrives.
func (m *machine) reserve(name string) (release func(), err error) {
	if m.names[name] != "" {
		return nil, pod.Errorf(pod.ClassExists, "", "name %q is reserved", name)
	}
	m.names[name] = "a request"
	return func() { delete(m.names, name) }, nil
}

func (m *machine) createSandbox(s *scope, p *corev1.Pod, specHash string, attempt uint32, reply func(error)) {
	name := fmt.Sprintf("%s_%d", p.UID, attempt)
	m.issue(s, request{
		what: fmt.Sprintf("create sandbox %s", name), uid: p.UID, timeout: sandboxTimeout,
		arrive: func() (func(), error) { return m.reserve(name) },
		takes:  m.w.between(50*time.Millisecond, 2*time.Second),
		effect: func(_ *call, finish func(error)) {
			one := &sandbox{name: name, Sandbox: pod.Sandbox{
				ID: m.id("s"), Attempt: attempt, Ready: true, HostNetwork: p.Spec.HostNetwork, CreatedAt: m.w.wall(),
				Identity: pod.Identity{UID: p.UID, Key: pod.KeyOf(p), Spec: specHash, GraceSeconds: pod.GracePeriod(p), Source: "file"},
			}}
			if !one.HostNetwork {
				one.IPs = []string{fmt.Sprintf("10.0.%d.%d", m.ids/250, m.ids%250)}
			}
			m.names[name] = one.ID
			m.sandboxes = append(m.sandboxes, one)
			m.w.logf("  sandbox %s of %s is ready", one.ID, p.UID)
			m.w.truth.dirty = true
			m.hint(p.UID)
			finish(nil)
		},
		reply: reply,
	})
}

func (m *machine) createContainer(s *scope, p *corev1.Pod, spec *corev1.Container, kind pod.Kind, in string, attempt uint32, reply func(error)) {
	name := fmt.Sprintf("%s_%s_%d", p.UID, spec.Name, attempt)
	key := pod.KeyOf(p)
	m.issue(s, request{
		what: fmt.Sprintf("create container %s in %s", name, in), uid: p.UID, timeout: callTimeout,
		arrive: func() (func(), error) {
			if box := m.sandbox(in); box == nil || !box.Ready {
				return nil, callError(pod.ClassUnknown, "create container "+name+": its sandbox is not running")
			}
			if !m.present[spec.Image] {
				return nil, callError(pod.ClassNotFound, "create container "+name+": there is no image "+spec.Image)
			}
			return m.reserve(name)
		},
		takes: m.w.between(10*time.Millisecond, 300*time.Millisecond),
		effect: func(c *call, finish func(error)) {
			if box := m.sandbox(in); box == nil || !box.Ready {
				c.release()
				finish(callError(pod.ClassUnknown, "create container "+name+": its sandbox went away"))
				return
			}
			one := &container{uid: p.UID, name: name, spec: spec, key: key, Container: pod.Container{
				ID: m.id("c"), SandboxID: in, Name: spec.Name, Kind: kind, Attempt: attempt, State: pod.StateCreated,
				Image: spec.Image, ImageID: "sha256:" + spec.Image, Hash: pod.ContainerHash(spec), CreatedAt: m.w.wall(),
			}}
			m.names[name] = one.ID
			m.containers = append(m.containers, one)
			m.w.truth.created(one)
			finish(nil)
		},
		reply: reply,
	})
}

func (m *machine) startContainer(s *scope, uid types.UID, id string, reply func(error)) {
	m.issue(s, request{
		what: "start container " + id, uid: uid, timeout: callTimeout,
		arrive: func() (func(), error) {
			return func() {
				// The runtime cancels a start whose caller is gone.
				if c := m.container(id); c != nil && c.State == pod.StateCreated {
					m.never(c)
				}
			}, nil
		},
		takes: m.w.between(5*time.Millisecond, 200*time.Millisecond),
		effect: func(_ *call, finish func(error)) {
			c := m.container(id)
			if c == nil {
				finish(callError(pod.ClassNotFound, "start container "+id))
				return
			}
			if box := m.sandbox(c.SandboxID); c.State != pod.StateCreated || box == nil || !box.Ready {
				finish(callError(pod.ClassUnknown, "start container "+id+": it is "+c.State.String()+" or its sandbox is not running"))
				return
			}
			if m.w.chaos.startFails() {
				// As a command that is not there: the instance ends at once.
				m.never(c)
				m.w.truth.of(c.uid).refused[c.Name] = true
				finish(callError(pod.ClassUnknown, "start container "+id+": no such file"))
				return
			}
			m.begin(c)
			finish(nil)
		},
		reply: reply,
	})
}

// never makes a created container one that could not be started: it ended and
// never ran.
func (m *machine) never(c *container) {
	c.State, c.ExitCode, c.Reason, c.FinishedAt = pod.StateExited, 128, "StartError", m.w.wall()
	m.w.logf("  %s (%s of %s, attempt %d) is not started", c.ID, c.Name, c.uid, c.Attempt)
	m.w.truth.of(c.uid).unstarted[c.Name] = true
	m.hint(c.uid)
}

// begin runs the program of a container.
func (m *machine) begin(c *container) {
	n := string(c.uid) + " " + c.Name
	c.step = stepOf(c.spec, m.starts[n])
	m.starts[n]++
	c.alive, c.State, c.StartedAt = true, pod.StateRunning, m.w.wall()
	c.upAt = m.w.now + m.w.chaos.startTakes()
	c.life++
	m.w.logf("  %s (%s of %s, attempt %d) runs", c.ID, c.Name, c.uid, c.Attempt)
	m.w.truth.started(c)
	m.hint(c.uid)
	if life := c.life; !c.step.forever {
		m.w.after(c.step.after, func() {
			if c.life == life {
				c.run.itself = true
				m.end(c, c.step.code, "")
			}
		})
	}
}

// end is the death of a process.
func (m *machine) end(c *container, code int32, reason string) {
	if !c.alive {
		return
	}
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	c.alive, c.State, c.ExitCode, c.Reason, c.FinishedAt = false, pod.StateExited, code, reason, m.w.wall()
	c.life++
	m.w.logf("  %s (%s of %s) ended with %d", c.ID, c.Name, c.uid, code)
	m.w.truth.ended(c)
	m.hint(c.uid)
}

// signal delivers the stop signal.
func (m *machine) signal(c *container) {
	if c.step.deaf || !c.alive {
		return
	}
	life := c.life
	m.w.after(c.step.dies, func() {
		if c.life == life {
			m.end(c, c.step.diesWith, "")
		}
	})
}

// kill delivers SIGKILL; a stuck process takes its time.
func (m *machine) kill(c *container) {
	if !c.alive {
		return
	}
	life := c.life
	m.w.at(max(m.w.now, c.stuck), func() {
		if c.life == life {
			m.end(c, 137, "")
		}
	})
}

func (m *machine) stopContainer(s *scope, uid types.UID, id string, grace time.Duration, reply func(error)) {
	m.issue(s, request{
		what: fmt.Sprintf("stop container %s", id), uid: uid, timeout: callTimeout + grace,
		effect: func(call *call, finish func(error)) {
			c := m.container(id)
			switch {
			case c == nil:
				finish(nil)
				return
			case c.State == pod.StateUnknown:
				m.reap(c)
				finish(nil)
				return
			case !c.alive:
				finish(nil)
				return
			}
			m.signal(c)
			killAt := m.w.now + grace
			life := c.life
			var wait func()
			wait = func() {
				switch {
				case c.life != life:
					finish(nil)
				case call.dropped:
				case m.w.now >= killAt:
					m.kill(c)
					m.w.after(100*time.Millisecond, wait)
				default:
					m.w.at(min(killAt, m.w.now+time.Second/4), wait)
				}
			}
			m.w.after(time.Millisecond, wait)
		},
		reply: reply,
	})
}

// reap ends a container whose state the runtime had lost.
func (m *machine) reap(c *container) {
	if c.alive {
		m.end(c, 137, "Unknown")
		return
	}
	c.State = pod.StateExited
	m.hint(c.uid)
}

func (m *machine) killContainer(s *scope, uid types.UID, id string, reply func(error)) {
	m.issue(s, request{
		what: "kill container " + id, uid: uid, timeout: callTimeout,
		effect: func(_ *call, finish func(error)) {
			if c := m.container(id); c != nil {
				m.kill(c)
			}
			finish(nil)
		},
		reply: reply,
	})
}

func (m *machine) removeContainer(s *scope, uid types.UID, id string, reply func(error)) {
	m.issue(s, request{
		what: "remove container " + id, uid: uid, timeout: callTimeout,
		effect: func(_ *call, finish func(error)) {
			c := m.container(id)
			if c == nil {
				finish(nil)
				return
			}
			m.end1(c, func() { finish(m.drop(c)) })
		},
		reply: reply,
	})
}

// end1 kills a container if it must, and goes on when it is dead.
func (m *machine) end1(c *container, then func()) {
	if !c.alive {
		then()
		return
	}
	m.kill(c)
	m.w.at(max(m.w.now, c.stuck), then)
}

// drop forgets a dead container.
func (m *machine) drop(c *container) error {
	if c.alive {
		return callError(pod.ClassUnknown, "remove container "+c.ID+": it still runs")
	}
	if !slices.Contains(m.containers, c) {
		return nil
	}
	m.containers = slices.DeleteFunc(m.containers, func(o *container) bool { return o == c })
	delete(m.names, c.name)
	m.w.truth.removed(c)
	m.hint(c.uid)
	return nil
}

func (m *machine) of(sandbox string) []*container {
	var list []*container
	for _, c := range m.containers {
		if c.SandboxID == sandbox {
			list = append(list, c)
		}
	}
	return list
}
