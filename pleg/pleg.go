package pleg

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/pod"
)

// Lister is what the PLEG asks of the runtime.
type Lister interface {
	// List returns the states of all pods in a few calls.
	List(ctx context.Context) (Listing, error)
	// Inspect returns everything about one pod.
	Inspect(ctx context.Context, uid types.UID) (pod.Observation, error)
	// Events sends hints until the stream breaks or ctx ends.
	Events(ctx context.Context, hints chan<- Hint) error
}

// Hint says that something may have happened.
type Hint struct {
	UID types.UID // empty when the event did not tell
	ID  string    // of the container or sandbox
	// Urgent is set for ends. Other hints mostly tell of what the workers do
	// themselves, so they can wait a moment.
	Urgent bool
}

// Options are the periods and bounds.
type Options struct {
	RelistSlow  time.Duration // between relists while the stream stands
	RelistFast  time.Duration // while it does not (C-7)
	Timeout     time.Duration // of one call
	Inspections int           // at most so many at once
	Stale       time.Duration // unhealthy without a relist for so long (PL-9)
	// Observe, if set, is told of every relist: how long it took, and from the
	// start of the last one that succeeded to its own, zero for the first. It must
	// be quick.
	Observe func(took, interval time.Duration)
}

// Defaults are the values that the agent uses.
func Defaults() Options {
	return Options{
		RelistSlow: time.Minute, RelistFast: time.Second, Timeout: 2 * time.Minute,
		Inspections: 8, Stale: 3 * time.Minute,
	}
}

// Delays of inspections after a hint. An event of containerd can arrive before
// its CRI service has the new state, so an urgent hint that shows no change is
// followed up a few times.
const (
	lazy          = 100 * time.Millisecond
	followUpMin   = 5 * time.Millisecond
	followUps     = 6
	streamRetry   = time.Second
	streamSettles = 500 * time.Millisecond
	relistMinGap  = 200 * time.Millisecond
)

// beatPeriod is how often Run goes round at least, so that a loop that waits can
// be told from one that is stuck.
const beatPeriod = 10 * time.Second

// PLEG notices changes. Its fields belong to the goroutine of Run, except what
// health guards.
type PLEG struct {
	lister  Lister
	o       Options
	changes *Changes
	health  health

	last     Listing              // the newest states known
	owners   map[string]types.UID // of containers and sandboxes
	pending  map[types.UID]*inspection
	running  int // inspections in flight
	results  chan result
	listings chan listing
	hints    chan Hint
	streams  chan bool // the event stream came up or went down

	stream      bool // it stands
	relisting   bool
	relistAt    time.Time
	lastRelist  time.Time // when the newest one started
	listed      bool      // at least one listing succeeded
	parts       sync.WaitGroup
	timer       *time.Timer
	forceRelist chan struct{}
}

// inspection is a pod that waits for one or has one in flight.
type inspection struct {
	due      time.Time
	running  bool
	again    bool // a hint came while it ran
	urgent   bool
	followed int
	listed   pod.Observation // what a listing showed meanwhile
}

type result struct {
	uid      types.UID
	observed pod.Observation
	err      error
}

type listing struct {
	started time.Time
	took    time.Duration
	pods    Listing
	err     error
}

// New returns a PLEG over a runtime.
func New(lister Lister, o Options) *PLEG {
	return &PLEG{
		lister: lister, o: o, changes: newChanges(), health: health{inFlight: map[types.UID]time.Time{}},
		last: Listing{}, owners: map[string]types.UID{}, pending: map[types.UID]*inspection{},
		results: make(chan result), listings: make(chan listing), hints: make(chan Hint, 256),
		streams: make(chan bool), forceRelist: make(chan struct{}, 1),
	}
}

// Changes returns the set that changed pods are put into.
func (p *PLEG) Changes() *Changes { return p.changes }

// Run works until ctx ends and waits for the calls it started.
func (p *PLEG) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	p.timer = time.NewTimer(0)
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	p.parts.Go(func() { p.follow(ctx) })
	defer func() {
		cancel()
		p.timer.Stop()
		done := make(chan struct{})
		go func() { p.parts.Wait(); close(done) }()
		for {
			select {
			case <-p.results:
			case <-p.listings:
			case <-p.streams:
			case <-done:
				return
			}
		}
	}()
	for {
		p.health.loop()
		p.arm(ctx)
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-p.timer.C:
		case r := <-p.listings:
			p.listingDone(r)
		case r := <-p.results:
			p.inspected(r)
		case h := <-p.hints:
			p.hint(h)
		case up := <-p.streams:
			p.stream = up
			p.health.setStream(up)
			p.relistSoon(0) // what happened in between was not told
		case <-p.forceRelist:
			p.relistSoon(0)
		}
	}
}

// Relist asks for a relist now.
func (p *PLEG) Relist() {
	select {
	case p.forceRelist <- struct{}{}:
	default:
	}
}

// arm starts what is due and sets the timer for what is due next.
func (p *PLEG) arm(ctx context.Context) {
	now := time.Now()
	if !p.relisting && !now.Before(p.relistAt) {
		p.relist(ctx, now)
	}
	next := time.Time{}
	if !p.relisting {
		next = p.relistAt
	}
	for uid, in := range p.pending {
		if in.running {
			continue
		}
		if !now.Before(in.due) {
			if p.running < p.o.Inspections {
				p.inspect(ctx, uid, in)
			}
			continue // else the next result makes room
		}
		if next.IsZero() || in.due.Before(next) {
			next = in.due
		}
	}
	p.timer.Stop()
	if !next.IsZero() {
		p.timer.Reset(time.Until(next))
	}
}

func (p *PLEG) relist(ctx context.Context, now time.Time) {
	p.relisting, p.lastRelist = true, now
	p.parts.Go(func() {
		call, cancel := context.WithTimeout(ctx, p.o.Timeout)
		defer cancel()
		pods, err := p.lister.List(call)
		p.listings <- listing{started: now, took: time.Since(now), pods: pods, err: err}
	})
}

func (p *PLEG) relistSoon(after time.Duration) {
	at := time.Now().Add(after)
	if earliest := p.lastRelist.Add(relistMinGap); at.Before(earliest) && p.listed {
		at = earliest
	}
	if p.relisting || at.Before(p.relistAt) {
		p.relistAt = at
	}
}

// listingDone compares a listing with the last one. Pods that changed are
// inspected; what an inspection saw later than the listing stays.
func (p *PLEG) listingDone(r listing) {
	p.relisting = false
	period := p.o.RelistFast
	if p.stream {
		period = p.o.RelistSlow
	}
	if p.relistAt.Before(r.started) || p.relistAt.Equal(r.started) || p.relistAt.IsZero() {
		p.relistAt = time.Now().Add(period)
	}
	interval := p.health.relisted(r)
	if p.o.Observe != nil {
		p.o.Observe(r.took, interval)
	}
	if r.err != nil {
		p.relistAt = time.Now().Add(p.o.RelistFast)
		klog.V(3).InfoS("Cannot list pods", "err", r.err)
		return
	}
	p.listed = true
	clear(p.owners)
	p.keepNewer(r)
	listed := Listed{TakenAt: r.started, UIDs: make(map[types.UID]bool, len(r.pods))}
	for uid := range r.pods {
		listed.UIDs[uid] = true
	}
	p.changes.putListed(listed)
	for _, e := range Diff(p.last, r.pods) {
		// One that waits or is under way is not hurried by the next listings: they
		// show the same change again until it is done.
		if in := p.pending[e.UID]; in != nil {
			if in.listed = r.pods[e.UID]; in.listed.TakenAt.IsZero() {
				in.listed.TakenAt = r.started // nothing is left of it
			}
		} else {
			p.want(e.UID, 0, false)
		}
	}
	// The old states of changed pods stay until they are inspected: if that
	// fails, the next listing shows the same change again (PL-4).
	for uid, o := range r.pods {
		if p.pending[uid] == nil {
			p.last[uid] = o
		}
	}
}

// keepNewer puts what inspections saw since the listing began in its place.
func (p *PLEG) keepNewer(r listing) {
	for uid, o := range r.pods {
		p.own(uid, o)
		if known, ok := p.last[uid]; ok && known.TakenAt.After(r.started) {
			r.pods[uid] = known
		}
	}
	for uid, known := range p.last {
		if _, listed := r.pods[uid]; !listed && known.TakenAt.After(r.started) {
			r.pods[uid] = known
		}
	}
}

func (p *PLEG) own(uid types.UID, o pod.Observation) {
	for _, s := range o.Sandboxes {
		p.owners[s.ID] = uid
	}
	for _, c := range o.Containers {
		p.owners[c.ID] = uid
	}
}

func (p *PLEG) hint(h Hint) {
	uid := h.UID
	if uid == "" {
		uid = p.owners[h.ID]
	}
	switch {
	case uid == "":
		p.relistSoon(lazy) // something new, or not ours
	case h.Urgent:
		p.want(uid, 0, true)
	default:
		p.want(uid, lazy, false)
	}
}

// want asks for an inspection after a delay; an earlier one that is pending stays.
func (p *PLEG) want(uid types.UID, after time.Duration, urgent bool) {
	due := time.Now().Add(after)
	in := p.pending[uid]
	switch {
	case in == nil:
		in = &inspection{due: due}
		p.pending[uid] = in
	case in.running:
		in.again = true
		in.due = due
	case due.Before(in.due):
		in.due = due
	}
	if urgent {
		in.urgent, in.followed = true, 0
	}
}

func (p *PLEG) inspect(ctx context.Context, uid types.UID, in *inspection) {
	in.running, in.again = true, false
	p.running++
	p.health.begin(uid)
	p.parts.Go(func() {
		call, cancel := context.WithTimeout(ctx, p.o.Timeout)
		defer cancel()
		o, err := p.lister.Inspect(call, uid)
		p.results <- result{uid: uid, observed: o, err: err}
	})
}

// inspected reports a pod that changed.
func (p *PLEG) inspected(r result) {
	p.running--
	p.health.end(r.uid, r.err)
	in := p.pending[r.uid]
	in.running = false
	if r.err != nil {
		in.due = time.Now().Add(p.o.RelistFast)
		if errors.Is(r.err, context.Canceled) {
			delete(p.pending, r.uid)
		}
		return
	}
	events := DiffPod(r.uid, p.last[r.uid], r.observed)
	if in.listed.TakenAt.After(r.observed.TakenAt) && len(DiffPod(r.uid, r.observed, in.listed)) > 0 {
		in.again, in.due = true, time.Now()
	}
	switch {
	case in.again:
	case in.urgent && len(events) == 0 && in.followed < followUps:
		in.due = time.Now().Add(followUpMin << in.followed)
		in.followed++
	default:
		delete(p.pending, r.uid)
	}
	if len(events) > 0 {
		in.urgent = false
		p.changes.put(Change{UID: r.uid, Observed: r.observed, Events: events})
	}
	p.own(r.uid, r.observed)
	if len(r.observed.Sandboxes)+len(r.observed.Containers) == 0 {
		delete(p.last, r.uid)
		return
	}
	p.last[r.uid] = r.observed
}

// follow keeps the event stream up. Runtimes do not say when a stream stands, so
// one that lasted a moment counts; the relist then finds what was missed.
func (p *PLEG) follow(ctx context.Context) {
	for ctx.Err() == nil {
		ended := make(chan error, 1)
		p.parts.Go(func() { ended <- p.lister.Events(ctx, p.hints) })
		var err error
		select {
		case err = <-ended:
		case <-time.After(streamSettles):
			p.tell(ctx, true)
			err = <-ended
			p.tell(ctx, false)
		}
		if ctx.Err() != nil {
			return
		}
		klog.V(2).InfoS("The event stream of the runtime ended", "err", err)
		select {
		case <-time.After(streamRetry):
		case <-ctx.Done():
		}
	}
}

func (p *PLEG) tell(ctx context.Context, up bool) {
	select {
	case p.streams <- up:
	case <-ctx.Done():
	}
}
