package pleg_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/pleg"
)

var errStream = errors.New("the stream broke")

// machine is a runtime as the PLEG sees it.
type machine struct {
	hints  chan pleg.Hint
	breaks chan struct{}

	mu        sync.Mutex // guards the fields below
	pods      map[types.UID]pod.Observation
	noStream  bool
	listErr   error
	refuse    map[types.UID]error // inspections that fail
	hang      map[types.UID]bool  // inspections that hang until their context ends
	took      time.Duration       // of each inspection
	lists     []time.Time
	inspects  map[types.UID][]time.Time
	running   int
	atOnce    int
	listDelay time.Duration
}

func newMachine() *machine {
	return &machine{
		hints: make(chan pleg.Hint), breaks: make(chan struct{}), pods: map[types.UID]pod.Observation{},
		refuse: map[types.UID]error{}, hang: map[types.UID]bool{}, inspects: map[types.UID][]time.Time{},
	}
}

func (m *machine) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *machine) set(uid types.UID, parts ...string) {
	m.change(func() {
		m.pods[uid] = observe(parts...)
		if len(parts) == 0 {
			delete(m.pods, uid)
		}
	})
}

func (m *machine) List(ctx context.Context) (pleg.Listing, error) {
	began := time.Now()
	m.mu.Lock()
	m.lists = append(m.lists, began)
	pods, err, delay := maps.Clone(m.pods), m.listErr, m.listDelay
	m.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	for uid, o := range pods {
		o.TakenAt = began
		pods[uid] = o
	}
	return pods, nil
}

func (m *machine) Inspect(ctx context.Context, uid types.UID) (pod.Observation, error) {
	m.mu.Lock()
	m.inspects[uid] = append(m.inspects[uid], time.Now())
	m.running++
	m.atOnce = max(m.atOnce, m.running)
	o, err, hang, took := m.pods[uid], m.refuse[uid], m.hang[uid], m.took
	m.mu.Unlock()
	defer m.change(func() { m.running-- })
	o.TakenAt = time.Now()
	if hang {
		<-ctx.Done()
		return pod.Observation{}, ctx.Err()
	}
	time.Sleep(took)
	return o, err
}

func (m *machine) Events(ctx context.Context, out chan<- pleg.Hint) error {
	m.mu.Lock()
	no := m.noStream
	m.mu.Unlock()
	if no {
		return errStream
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.breaks:
			return errStream
		case h := <-m.hints:
			select {
			case out <- h:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (m *machine) listed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lists)
}

func (m *machine) inspected(uid types.UID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.inspects[uid])
}

// generator is a PLEG at work in a bubble.
type generator struct {
	testing.TB // of the bubble
	*pleg.PLEG
	*machine
}

// inBubble runs a PLEG over a machine. That the bubble ends shows that nothing
// of it is left.
func inBubble(t *testing.T, prepare func(*machine, *pleg.Options), test func(generator)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, o := newMachine(), pleg.Defaults()
		if prepare != nil {
			prepare(m, &o)
		}
		g := generator{t, pleg.New(m, o), m}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { g.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(g)
	})
}

// settle lets the first listing and the stream come up, and drops what they
// reported.
func (g generator) settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
	g.Changes().Take()
}

// take returns what changed, as texts by UID.
func (g generator) take() map[types.UID][]string {
	synctest.Wait()
	out := map[types.UID][]string{}
	for _, c := range g.Changes().Take() {
		out[c.UID] = texts(c.Events)
	}
	return out
}
