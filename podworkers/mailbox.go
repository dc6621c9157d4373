package podworkers

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Mailbox holds the newest of each thing that a worker has to know. Putting
// never blocks; a value that the worker has not taken yet is replaced.
type Mailbox struct {
	wake chan struct{} // one token

	mu   sync.Mutex // guards mail for a few lines at a time
	mail mail
}

// mail is the content of a mailbox.
type mail struct {
	pod         *corev1.Pod
	stop        *pod.StopRequest
	observation *pod.Observation
	verdicts    map[string]pod.Verdicts // by container ID
}

func newMailbox() *Mailbox { return &Mailbox{wake: make(chan struct{}, 1)} }

// PutPod replaces the desired pod.
func (m *Mailbox) PutPod(p *corev1.Pod) { m.put(func(n *mail) { n.pod = p }) }

// PutStop asks for the end of the pod, merged with what was asked before: the
// smallest grace wins.
func (m *Mailbox) PutStop(req pod.StopRequest) {
	m.put(func(n *mail) {
		if n.stop != nil {
			req = n.stop.Merge(req)
		}
		n.stop = &req
	})
}

// PutObservation offers what somebody else saw of the pod; the newest is kept.
func (m *Mailbox) PutObservation(o pod.Observation) {
	m.put(func(n *mail) {
		if n.observation == nil || n.observation.TakenAt.Before(o.TakenAt) {
			n.observation = &o
		}
	})
}

// PutVerdicts offers verdicts about one container instance; of each kind the
// newest is kept.
func (m *Mailbox) PutVerdicts(v pod.Verdicts) {
	m.put(func(n *mail) {
		if n.verdicts == nil {
			n.verdicts = map[string]pod.Verdicts{}
		}
		old, known := n.verdicts[v.ContainerID]
		if known {
			v = old.Merge(v)
		}
		n.verdicts[v.ContainerID] = v
	})
}

// Poke makes the worker compute again.
func (m *Mailbox) Poke() { m.put(func(*mail) {}) }

func (m *Mailbox) put(change func(*mail)) {
	m.mu.Lock()
	change(&m.mail)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take empties the mailbox.
func (m *Mailbox) take() mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.mail
	m.mail = mail{}
	return out
}
