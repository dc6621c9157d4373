package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/events"
	"nodelet.dev/nodelet/internal/gc"
	"nodelet.dev/nodelet/internal/metrics"
	"nodelet.dev/nodelet/internal/node"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/server"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/internal/store"
	"nodelet.dev/nodelet/internal/tracing"
	"nodelet.dev/nodelet/internal/volumes"
	"nodelet.dev/nodelet/pleg"
	"nodelet.dev/nodelet/podworkers"
	"nodelet.dev/nodelet/probes"
	"nodelet.dev/nodelet/runtime"
)

// SocketName is the name of the agent's socket in the run directory.
const SocketName = "nodelet.sock"

// SocketGroup is the group whose members may use the socket, if it exists.
const SocketGroup = "nodelet"

// stateFile is the name of the durable state in the root directory.
const stateFile = "state.db"

// Bounds of the first look at what the runtime has.
const (
	inventoryTimeout     = 15 * time.Second
	inventoryInspections = 8
)

// Agent is a whole node agent.
type Agent struct {
	cfg     config.Configuration // as of the start
	version string
	facts   node.Facts
	clock   node.Clock
	store   *store.Store
	salvage *store.Salvage // what was lost of the state, nil when nothing was
	runtime *runtime.Client
	images  *imageSources
	pleg    *pleg.PLEG
	volumes *volumes.Manager
	ports   *node.HostPorts
	events  eventLog
	metrics *metrics.Metrics
	tracer  *tracing.Tracer // nil when nothing is traced
	courses *courses
	board   *board
	sources []feed
	began   time.Time

	prober  *probes.Manager
	workers *podworkers.Workers // belongs to syncLoop
	desired *desired            // belongs to syncLoop
	ready   readiness           // belongs to syncLoop

	sets        chan source.Set
	inventories chan map[types.UID]pod.Observation
	done        *finishedSet
	live        atomic.Pointer[config.Configuration] // with what was applied since
	reload      atomic.Pointer[reloadView]
	reloaded    chan struct{} // one token: the live configuration is another one
	beat        atomic.Int64  // when syncLoop last finished a round, in nanoseconds since began
	known       atomic.Pointer[sourceView]
	unwritten   atomic.Int64 // pods of which something could not be stored
}

// feed is one source of desired pods.
type feed struct {
	name     string
	origin   string
	run      func(context.Context, chan<- source.Set) error
	problems func() []source.Problem
	// reload makes the source look now, with the live configuration.
	reload func(config.Configuration)
}

// New builds an agent and takes the lock on its root directory. What it finds
// there it refuses rather than loses: see package store for the errors.
func New(cfg config.Configuration, version string) (*Agent, error) {
	return build(cfg, version, nil)
}

// build is New with a runtime that no socket leads to, if dial is given.
func build(cfg config.Configuration, version string, dial func(context.Context, string) (net.Conn, error)) (*Agent, error) {
	facts, err := node.Read(cfg.NodeName)
	if err != nil {
		return nil, err
	}
	clock, err := node.NewClock(facts.BootID)
	if err != nil {
		return nil, err
	}
	db, salvage, err := store.OpenOrSalvage(filepath.Join(cfg.RootDirectory, stateFile), time.Now())
	if err != nil {
		return nil, err
	}
	options := runtimeOptions(cfg, facts)
	options.Dialer = dial
	own := &imageSources{socket: dial == nil}
	options.Credentials, options.Arriving = own.lookup, own.arriving
	a, tracer := &Agent{}, newTracer(cfg, facts.Name, version)
	counts := metrics.New(metrics.Options{Node: facts.Name, Version: version, Look: a.look})
	observeRuntime(&options, counts, tracer)
	client := runtime.New(options)
	*a = Agent{
		cfg: cfg, version: version, salvage: salvage, facts: facts, clock: clock, store: db, runtime: client, images: own,
		pleg: pleg.New(plegRuntime{client}, plegOptions(counts)), volumes: volumes.New(volumes.Options{Root: cfg.RootDirectory, MemoryBytes: facts.MemoryBytes}),
		ports: node.NewHostPorts(), events: eventLog{events.NewLog("nodelet", facts.Name), counts.Event}, metrics: counts, tracer: tracer, courses: newCourses(counts), board: newBoard(), began: time.Now(),
		sets: make(chan source.Set), inventories: make(chan map[types.UID]pod.Observation, 1), done: newFinishedSet(),
		reloaded: make(chan struct{}, 1),
	}
	a.live.Store(&cfg)
	a.reload.Store(&reloadView{})
	a.desired = newDesired(a)
	a.known.Store(&sourceView{})
	return a, nil
}

func (a *Agent) now() pod.Stamp { return a.clock.Now() }

// Run works until ctx ends: it brings the pods to what the sources want, and
// leaves them running when it goes. ready is called once the state is loaded and
// the socket answers, before anything is pulled or started.
func (a *Agent) Run(ctx context.Context, ready func()) error {
	defer func() {
		if err := a.store.Close(); err != nil {
			klog.ErrorS(err, "Cannot close the state file")
		}
	}()
	instances, err := a.store.All()
	if err != nil {
		// What cannot be read is adopted from the runtime; the rest is kept.
		klog.ErrorS(err, "Cannot load the state of some pods")
	}
	if s := a.salvage; s != nil {
		a.problem(source.Problem{
			Origin: a.cfg.RootDirectory, Reason: "StateDamaged",
			Message: fmt.Sprintf("%v; it is kept as %s, and the pods that run are adopted without their history", s.Cause, s.MovedTo),
		})
	}
	a.announce()
	listener, err := server.Listen(filepath.Join(a.cfg.RunDirectory, SocketName), SocketGroup)
	if err != nil {
		return err
	}
	a.sources = a.feeds(instances)
	a.goneRound()

	// The parts stop in the reverse order of what they need: sources and PLEG,
	// then the workers, then the runtime and the socket.
	outer := newGroup(ctx, false)
	inner := newGroup(ctx, true)
	a.begin(outer, inner, instances, func() {
		// Not before: an agent that does not know its pods yet would show none.
		outer.run("server", func(ctx context.Context) error { return server.Serve(ctx, listener, a) })
		if address := a.cfg.MetricsBindAddress; address != "" {
			outer.run("metrics", func(ctx context.Context) error { return server.ServeMetrics(ctx, address, a, a.tellMetrics) })
		}
		ready()
	})
	select {
	case <-inner.ctx.Done():
	case <-outer.ctx.Done():
	}
	klog.InfoS("Leaving; the pods run on", "after", time.Since(a.began).Round(time.Second))
	return a.leave(outer, inner)
}

// begin starts all parts but the servers, which loaded starts: it is called once
// every stored pod has its worker.
func (a *Agent) begin(outer, inner *group, instances []pod.Instance, loaded func()) {
	a.openImages()
	a.beginTraces(outer.ctx)
	outer.run("runtime", a.runtime.Run)
	outer.run("events", func(ctx context.Context) error { return a.events.Run(ctx, a.store) })
	a.prober = a.newProber(inner.ctx)
	a.workers = podworkers.New(outer.ctx, a.workerDeps())
	a.desired.recover(instances)
	loaded()
	inner.run("images", a.images.run)
	for _, s := range a.sources {
		inner.run("source "+s.name, func(ctx context.Context) error { return s.run(ctx, a.sets) })
	}
	inner.run("probes", a.prober.Run)
	inner.run("pleg", func(ctx context.Context) error { a.pleg.Run(ctx); return nil })
	inner.run("inventory", a.takeInventory)
	inner.run("gc", a.collector().Run)
	inner.run("syncLoop", func(ctx context.Context) error { a.syncLoop(ctx); return nil })
}

// leave stops all parts in their order.
func (a *Agent) leave(outer, inner *group) error {
	failure := inner.stop()
	bound, cancel := context.WithTimeout(outer.ctx, stopTimeout)
	a.workers.Stop(bound)
	cancel()
	a.endTraces(outer.ctx)
	return errors.Join(failure, outer.stop())
}

func (a *Agent) workerDeps() *podworkers.Deps {
	return &podworkers.Deps{
		Runtime: workerRuntime{Client: a.runtime, warn: a.warn, pulls: a.beginPull}, Volumes: podVolumes{a.volumes, a.cfg.ClusterDomain}, Ports: a.ports,
		Store: countedStore{a.store, a.metrics}, Sink: sink{a}, Begin: a.beginWave, Prober: workerProber{a.prober}, Limits: func() plan.Limits { return limits(*a.live.Load()) }, Now: a.now,
		HostIPs: a.facts.HostIPs, RuntimeName: "containerd", CallTimeout: a.cfg.RuntimeRequestTimeout.Duration,
	}
}

func (a *Agent) collector() *gc.Collector {
	return &gc.Collector{
		Runtime: gcRuntime{a.runtime}, Worked: a.board.has, PodLogsDir: a.cfg.PodLogsDir, LinksDir: linksDir(a.cfg),
		Failed: func(err error) {
			a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "ContainerGCFailed", err.Error())
		},
	}
}

// effective returns the pod as it runs here: on this node.
func (a *Agent) effective(p *corev1.Pod) *corev1.Pod {
	if p.Spec.NodeName == a.facts.Name {
		return p
	}
	p = p.DeepCopy()
	p.Spec.NodeName = a.facts.Name
	return p
}

// takeInventory lists the runtime once, as soon as that is possible.
func (a *Agent) takeInventory(ctx context.Context) error {
	wait := 100 * time.Millisecond
	for {
		err := a.runtime.Connect(ctx)
		var pods map[types.UID]pod.Observation
		if err == nil {
			pods, err = a.inspectAll(ctx)
		}
		if err == nil {
			a.inventories <- pods
			return nil
		}
		klog.V(2).InfoS("Cannot take the inventory of the runtime", "err", err, "retry", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// inspectAll lists all pods and inspects them, some at a time: states come from
// a listing, ends and addresses from inspections. Of a pod that cannot be
// inspected in time only the identity is believed, so that it holds up nobody
// else (INV-23); its worker looks for itself.
func (a *Agent) inspectAll(ctx context.Context) (map[types.UID]pod.Observation, error) {
	listing, err := a.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(listing.Foreign) > 0 {
		klog.InfoS("The runtime runs sandboxes of others, which are left alone", "count", len(listing.Foreign))
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(inventoryInspections)
	var mu sync.Mutex // guards out while the inspections run
	out := map[types.UID]pod.Observation{}
	for uid, listed := range listing.Pods {
		all.Go(func() error {
			o, err := a.runtime.Inspect(ctx, uid)
			if err != nil {
				klog.InfoS("Cannot inspect a pod for the inventory", "podUID", uid, "err", err)
				o = listed
				o.TakenAt = time.Time{} // older than anything
			}
			mu.Lock()
			defer mu.Unlock()
			out[uid] = o
			return nil
		})
	}
	return out, all.Wait()
}

// group runs parts that belong together and waits for all of them.
type group struct {
	ctx    context.Context //nolint:containedctx // the life of the group
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex // guards failure
	failure error
}

// newGroup returns a group. With follow it ends when ctx does; without, only
// when it is stopped, but keeps the values of ctx.
func newGroup(ctx context.Context, follow bool) *group {
	g := &group{}
	if !follow {
		ctx = detached{ctx}
	}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// detached is a context that does not end with its parent: what must outlive
// the order to leave, until the workers have left.
type detached struct{ context.Context } //nolint:containedctx // it is one

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }

// run starts a part. One that fails ends the group.
func (g *group) run(name string, part func(context.Context) error) {
	g.wait.Go(func() {
		if err := part(g.ctx); err != nil {
			g.mu.Lock()
			g.failure = errors.Join(g.failure, fmt.Errorf("%s: %w", name, err))
			g.mu.Unlock()
			g.cancel()
		}
	})
}

func (g *group) stop() error {
	g.cancel()
	g.wait.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}
