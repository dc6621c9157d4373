package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
)

// machine is a container runtime in a few maps, with a say in how each call
// ends.
type machine struct {
	mu         sync.Mutex // guards the fields below
	sandboxes  map[types.UID][]pod.Sandbox
	containers map[types.UID][]pod.Container
	names      map[string]types.UID // of the pod that an ID belongs to
	ids        int
	calls      []call
	down       bool                     // nothing answers
	takes      map[string]time.Duration // of a call, by operation and target, or by operation
	fails      map[string][]error       // of the next calls, likewise
	inert      map[string]bool          // it says that it did, and did not
	stopTakes  map[string]time.Duration // from the signal to the end, by container
	crashes    map[string]int32         // containers that exit at once, with this code
	terms      map[string]time.Time
	present    map[string]bool // images
}

type call struct {
	at     time.Time
	op     string
	target string
	err    error
}

func newMachine() *machine {
	return &machine{
		sandboxes: map[types.UID][]pod.Sandbox{}, containers: map[types.UID][]pod.Container{}, names: map[string]types.UID{},
		takes: map[string]time.Duration{}, fails: map[string][]error{}, inert: map[string]bool{}, stopTakes: map[string]time.Duration{},
		crashes: map[string]int32{}, terms: map[string]time.Time{}, present: map[string]bool{},
	}
}

func (m *machine) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// do is one call: note it, let time pass, fail or take effect.
func (m *machine) do(ctx context.Context, op, target string, effect func() error) (err error) {
	m.mu.Lock()
	m.calls = append(m.calls, call{at: time.Now(), op: op, target: target})
	index := len(m.calls) - 1
	takes, ok := m.takes[op+" "+target]
	if !ok {
		takes = m.takes[op]
	}
	m.mu.Unlock()
	defer func() { m.change(func() { m.calls[index].err = err }) }()
	if err := sleep(ctx, takes); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return pod.Errorf(pod.ClassUnavailable, "", "cannot %s %s: nobody answers", op, target)
	}
	for _, key := range []string{op + " " + target, op} {
		if list := m.fails[key]; len(list) > 0 {
			m.fails[key] = list[1:]
			if list[0] != nil {
				return list[0]
			}
		}
	}
	if m.inert[op] {
		return nil
	}
	return effect()
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return pod.Errorf(pod.ClassDeadline, "", "cannot wait any longer: %w", ctx.Err())
		}
		return pod.Errorf(pod.ClassCancelled, "", "given up: %w", ctx.Err())
	}
}

func (m *machine) Inspect(ctx context.Context, uid types.UID) (pod.Observation, error) {
	o := pod.Observation{TakenAt: time.Now()}
	err := m.do(ctx, "inspect", string(uid), func() error {
		o.Sandboxes, o.Containers = slices.Clone(m.sandboxes[uid]), slices.Clone(m.containers[uid])
		o.Sort()
		return nil
	})
	return o, err
}

// look is what a PLEG would report now. It is no call.
func (m *machine) look(uid types.UID) pod.Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := pod.Observation{TakenAt: time.Now(), Sandboxes: slices.Clone(m.sandboxes[uid]), Containers: slices.Clone(m.containers[uid])}
	o.Sort()
	return o
}

func (m *machine) CreateSandbox(ctx context.Context, p *corev1.Pod, specHash string, attempt uint32) error {
	return m.do(ctx, "create-sandbox", p.Name, func() error {
		for _, s := range m.sandboxes[p.UID] {
			if s.Attempt == attempt {
				return pod.Errorf(pod.ClassExists, "", "name %s/%d is reserved", p.Name, attempt)
			}
		}
		m.ids++
		s := pod.Sandbox{
			ID: fmt.Sprintf("box-%d", m.ids), Attempt: attempt, Ready: true, CreatedAt: time.Now(), IPs: []string{fmt.Sprintf("10.0.0.%d", m.ids)},
			HostNetwork: p.Spec.HostNetwork, Identity: pod.Identity{UID: p.UID, Key: pod.KeyOf(p), Spec: specHash},
		}
		m.names[s.ID] = p.UID
		m.sandboxes[p.UID] = append(m.sandboxes[p.UID], s)
		return nil
	})
}

func (m *machine) StopSandbox(ctx context.Context, id string) error {
	return m.do(ctx, "stop-sandbox", id, func() error {
		list := m.sandboxes[m.names[id]]
		for i := range list {
			if list[i].ID == id {
				list[i].Ready = false
			}
		}
		return nil
	})
}

func (m *machine) RemoveSandbox(ctx context.Context, id string) error {
	return m.do(ctx, "remove-sandbox", id, func() error {
		uid := m.names[id]
		m.sandboxes[uid] = slices.DeleteFunc(m.sandboxes[uid], func(s pod.Sandbox) bool { return s.ID == id })
		return nil
	})
}

func (m *machine) PullImage(ctx context.Context, _ *corev1.Pod, c *corev1.Container, pulling func()) (podworkers.Image, error) {
	began := time.Now()
	image := podworkers.Image{Ref: "sha256:" + c.Image, SizeBytes: 4096}
	m.mu.Lock()
	image.Present = m.present[c.Image]
	m.mu.Unlock()
	if image.Present {
		return image, m.do(ctx, "look-up", c.Image, func() error { return nil })
	}
	pulling()
	err := m.do(ctx, "pull", c.Image, func() error { m.present[c.Image] = true; return nil })
	image.Took = time.Since(began)
	image.Waited = image.Took
	return image, err
}

func (m *machine) CreateContainer(ctx context.Context, req podworkers.ContainerRequest) error {
	return m.do(ctx, "create", req.Name, func() error {
		for _, c := range m.containers[req.Pod.UID] {
			if c.Name == req.Name && c.Attempt == req.Attempt {
				return pod.Errorf(pod.ClassExists, "", "name %s/%d is reserved", req.Name, req.Attempt)
			}
		}
		spec, kind := pod.Find(&req.Pod.Spec, req.Name)
		m.ids++
		c := pod.Container{
			ID: fmt.Sprintf("%s-%d", req.Name, m.ids), SandboxID: req.Sandbox.ID, Name: req.Name, Kind: kind, Attempt: req.Attempt,
			State: pod.StateCreated, Image: spec.Image, ImageID: req.Image, Hash: pod.ContainerHash(spec), CreatedAt: time.Now(),
		}
		m.names[c.ID] = req.Pod.UID
		m.containers[req.Pod.UID] = append(m.containers[req.Pod.UID], c)
		return nil
	})
}

// at returns the container with an ID, for the holder of the lock.
func (m *machine) at(id string) *pod.Container {
	list := m.containers[m.names[id]]
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

func (m *machine) name(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.at(id); c != nil {
		return c.Name
	}
	return id
}

func (m *machine) StartContainer(ctx context.Context, id string) error {
	return m.do(ctx, "start", m.name(id), func() error {
		c := m.at(id)
		c.State, c.StartedAt = pod.StateRunning, time.Now()
		if code, ok := m.crashes[c.Name]; ok {
			m.end(c, code)
		}
		return nil
	})
}

// end marks a container as ended, for the holder of the lock.
func (m *machine) end(c *pod.Container, code int32) {
	c.State, c.FinishedAt, c.ExitCode, c.Reason = pod.StateExited, time.Now(), code, "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
}

func (m *machine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	name := m.name(id)
	m.mu.Lock()
	first, signalled := m.terms[id]
	if !signalled {
		first = time.Now()
		m.terms[id] = first
	}
	needs := time.Until(first.Add(m.stopTakes[name]))
	m.mu.Unlock()
	return m.do(ctx, "stop", fmt.Sprintf("%s %s", name, grace), func() error {
		m.mu.Unlock()
		err := sleep(ctx, min(needs, grace))
		m.mu.Lock()
		if c := m.at(id); err == nil && c != nil && c.State == pod.StateRunning {
			code := int32(0)
			if needs > grace {
				code = 137
			}
			m.end(c, code)
		}
		return err
	})
}

func (m *machine) KillContainer(ctx context.Context, id string) error {
	return m.do(ctx, "kill", m.name(id), func() error { m.end(m.at(id), 137); return nil })
}

func (m *machine) RemoveContainer(ctx context.Context, id string) error {
	return m.do(ctx, "remove", m.name(id), func() error {
		uid := m.names[id]
		m.containers[uid] = slices.DeleteFunc(m.containers[uid], func(c pod.Container) bool { return c.ID == id })
		return nil
	})
}

// exit ends the newest running instance of a container by itself.
func (m *machine) exit(uid types.UID, name string, code int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.containers[uid]
	for i := range slices.Backward(list) {
		if list[i].Name == name && list[i].State == pod.StateRunning {
			m.end(&list[i], code)
			return
		}
	}
	panic("no running container " + name)
}

// did returns how often an operation was called; a target is optional.
func (m *machine) did(op string, target ...string) int {
	return len(m.when(op, target...))
}

// when returns the calls of an operation.
func (m *machine) when(op string, target ...string) []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []time.Time
	for _, c := range m.calls {
		if c.op == op && (len(target) == 0 || c.target == target[0]) {
			list = append(list, c.at)
		}
	}
	return list
}

// count returns the number of calls of all kinds.
func (m *machine) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls)
}

// ops lists what was done, without inspections.
func (m *machine) ops() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for _, c := range m.calls {
		if c.op != "inspect" {
			list = append(list, c.op+" "+c.target)
		}
	}
	return list
}

// states tells of each container of a pod.
func (m *machine) states(uid types.UID) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for _, c := range m.containers[uid] {
		out[c.Name] = c.State.String()
	}
	return out
}

// result returns how the newest call of an operation ended.
func (m *machine) result(op, target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Backward(m.calls) {
		if c.op == op && c.target == target {
			return c.err
		}
	}
	return errors.New("there was no such call")
}

// lossy loses the answers of the first calls of an operation, after their
// effect.
type lossy struct {
	*machine
	op string

	lose int // belongs to the machine's lock
}

func (l *lossy) lost(op string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op != l.op || l.lose == 0 || err != nil {
		return err
	}
	l.lose--
	return pod.Errorf(pod.ClassUnavailable, "", "cannot %s: the connection broke", op)
}

func (l *lossy) CreateSandbox(ctx context.Context, p *corev1.Pod, specHash string, attempt uint32) error {
	return l.lost("create-sandbox", l.machine.CreateSandbox(ctx, p, specHash, attempt))
}

func (l *lossy) CreateContainer(ctx context.Context, req podworkers.ContainerRequest) error {
	return l.lost("create", l.machine.CreateContainer(ctx, req))
}

func (l *lossy) StartContainer(ctx context.Context, id string) error {
	return l.lost("start", l.machine.StartContainer(ctx, id))
}
