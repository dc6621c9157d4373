package probes

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// How many probes are in flight at one time, of all pods. More wait for their
// turn, which is no failure. Commands have a limit of their own, so that a
// runtime that hangs does not hold up the others.
const (
	maxCommands = 128
	maxRequests = 512
)

// Execer runs commands in containers.
type Execer interface {
	// ExecSync runs a command and waits until it has ended, at most the timeout,
	// after which nothing of it is left. The output is both streams, cut at limit
	// bytes. A command that ran too long is an error of pod.ClassDeadline; a runtime
	// that does not answer is one of pod.ClassUnavailable.
	ExecSync(ctx context.Context, containerID string, command []string, timeout time.Duration, limit int) (output string, exitCode int, err error)
}

// Inbox takes what the probes of a pod conclude. Putting does not block.
type Inbox interface {
	PutVerdicts(v pod.Verdicts)
}

// Event is something to tell the author of a pod.
type Event struct {
	Container string
	Reason    string
	Message   string
}

// Options configure a Manager. Execer is required.
type Options struct {
	Execer Execer
	// Event is told of failures and warnings. It must be quick and safe for
	// concurrent use, as Observe must.
	Event func(p *corev1.Pod, e Event)
	// Observe is told of every run that gave a result, or could have.
	Observe func(p *corev1.Pod, container string, kind pod.ProbeKind, r Result, took time.Duration)
	// UserAgent is what HTTP and gRPC probes say they are; default DefaultUserAgent.
	UserAgent string
}

// DefaultUserAgent begins like the kubelet's, since people filter logs by it.
const DefaultUserAgent = "kube-probe/1.37"

// Manager runs the probes of all pods. Its methods are safe for concurrent use.
type Manager struct {
	o        Options
	ctx      context.Context //nolint:containedctx // the life of all probes
	cancel   context.CancelFunc
	wait     sync.WaitGroup
	commands *semaphore.Weighted
	requests *semaphore.Weighted

	mu      sync.Mutex // guards the fields below for a few lines at a time
	stopped bool
	pods    map[types.UID]map[key]*active
}

// key names a probe of one container instance.
type key struct {
	containerID string
	kind        pod.ProbeKind
}

// active is a probe that has a goroutine, or had one and is decided.
type active struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when its goroutine has ended
}

// New returns a manager without probes. They end when ctx does, at the latest.
func New(ctx context.Context, o Options) *Manager {
	if o.Event == nil {
		o.Event = func(*corev1.Pod, Event) {}
	}
	if o.Observe == nil {
		o.Observe = func(*corev1.Pod, string, pod.ProbeKind, Result, time.Duration) {}
	}
	if o.UserAgent == "" {
		o.UserAgent = DefaultUserAgent
	}
	ctx, cancel := context.WithCancel(ctx)
	return &Manager{
		o: o, ctx: ctx, cancel: cancel, pods: map[types.UID]map[key]*active{},
		commands: semaphore.NewWeighted(maxCommands), requests: semaphore.NewWeighted(maxRequests),
	}
}

// Run waits until ctx ends, and then until all probes have.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	m.Stop()
	return nil
}

// Stop ends all probes and waits for them; none begins any more.
func (m *Manager) Stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.cancel()
	m.wait.Wait()
}

// Len returns how many probes are running or decided.
func (m *Manager) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, of := range m.pods {
		n += len(of)
	}
	return n
}

// Set makes the targets the probes of a pod. Those that run already go on as they
// are, others are cancelled, and nil ends all. It does not wait for probes in
// flight, yet what is cancelled and asked for again begins only after its end.
func (m *Manager) Set(p *corev1.Pod, targets []pod.ProbeTarget, inbox Inbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	before := m.pods[p.UID]
	after := make(map[key]*active, len(targets))
	for i := range targets {
		k := key{targets[i].ContainerID, targets[i].Kind}
		if old := before[k]; old != nil && old.cancel != nil {
			after[k] = old
			continue
		}
		after[k] = m.startLocked(p, &targets[i], inbox, before[k])
	}
	for k, old := range before {
		if after[k] != nil {
			continue
		}
		if old.cancel != nil {
			old.cancel()
			old.cancel = nil
		}
		select {
		case <-old.done:
		default:
			after[k] = old // until it has ended, for whoever asks for it again
		}
	}
	if len(targets) == 0 && len(after) == 0 {
		delete(m.pods, p.UID)
		return
	}
	m.pods[p.UID] = after
}

// startLocked starts the goroutine of a probe, which first waits for the one
// before it, if that is still in flight.
func (m *Manager) startLocked(p *corev1.Pod, t *pod.ProbeTarget, inbox Inbox, before *active) *active {
	ctx, cancel := context.WithCancel(m.ctx)
	a := &active{cancel: cancel, done: make(chan struct{})}
	w := m.newWorker(p, t, inbox)
	m.wait.Go(func() {
		defer m.ended(p.UID, key{t.ContainerID, t.Kind}, a)
		defer cancel()
		if before != nil {
			<-before.done
		}
		w.run(ctx)
	})
	return a
}

// ended notes the end of a goroutine. One that was cancelled is forgotten; one
// that decided is not, so that it is not started again.
func (m *Manager) ended(uid types.UID, k key, a *active) {
	close(a.done)
	m.mu.Lock()
	defer m.mu.Unlock()
	if of := m.pods[uid]; of[k] == a && a.cancel == nil {
		delete(of, k)
		if len(of) == 0 {
			delete(m.pods, uid)
		}
	}
}

// spread returns a random part of a period.
func spread(period time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(period))) //nolint:gosec // only so that not all begin at once
}
