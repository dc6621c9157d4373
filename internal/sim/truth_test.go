package sim

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// truth knows what really happened, whatever the agent believes.
type truth struct {
	w     *world
	pods  map[types.UID]*podTruth
	order []types.UID
	dirty bool // something started, ended or moved since the last check
	steps int  // computations checked
}

// podTruth is the truth about one pod instance.
type podTruth struct {
	uid  types.UID
	key  pod.Key
	pod  *corev1.Pod
	runs []*run
	made map[string]map[uint32]*knowledge // instances created, by name and attempt

	since    moment // when its worker was started first
	adopted  bool   // its record was lost
	intruded bool   // somebody else made instances of it
	grace    int64  // of the stop request, as the worker has it
	stop     *stopTruth
	round    int // restarts of all containers so far
	triggers map[string]int
	kept     *stopTruth      // the stop request that is on the disk
	rounds   int             // restarts of all containers that are on the disk
	shown    corev1.PodPhase // a terminal phase that was published
	counts   map[string]int32
	record   pod.Record // as it is on the disk
	waits    map[string]*patience
	// unstarted are containers of which an instance could not be started.
	unstarted map[string]bool
	// refused are those of which the runtime said so.
	refused map[string]bool
	images  map[string]string // that plans were made for
	edited  map[string]moment // when they changed
	trouble moment            // until when faults can have an effect on it
}

// knowledge says who knows of something: an agent process, or the disk.
type knowledge struct {
	gen  int // of the newest agent process that saw it
	disk bool
	ran  bool // its number must not be used again, for there are logs under it
}

func (k knowledge) known(w *world) bool { return k.disk || (k.gen == w.gen && k.gen > 0) }

// run is one life of a container.
type run struct {
	c              *container
	round          int
	began, ended   moment
	over, itself   bool
	code           int32
	boot           int       // in which it ended
	running, exit  knowledge // who knows that it runs, and how it ended
	replaced       knowledge // who decided that another takes its place
	listed         bool
	seenEnd        moment // when an agent first saw the end
	failedVerdict  bool
	ousted         bool // it was stopped so that another one takes its place
	startupVerdict bool
	judged         pod.Verdicts // as the agent knows it
	judgedOnDisk   pod.Verdicts
}

// stopTruth is a request to end a pod.
type stopTruth struct {
	asked    moment
	deadline moment
}

// patience is the restart delay by an own count.
type patience struct {
	delay   time.Duration
	updated moment
	boot    int
	charged *run
	image   string
	vague   bool // the agent's own count may be another one
	more    bool // it may be higher
}

func newTruth(w *world) *truth { return &truth{w: w, pods: map[types.UID]*podTruth{}} }

func (t *truth) of(uid types.UID) *podTruth {
	p := t.pods[uid]
	if p == nil {
		p = &podTruth{
			uid: uid, made: map[string]map[uint32]*knowledge{}, triggers: map[string]int{}, counts: map[string]int32{},
			waits: map[string]*patience{}, unstarted: map[string]bool{}, refused: map[string]bool{}, images: map[string]string{}, edited: map[string]moment{}, since: t.w.now,
		}
		t.pods[uid] = p
		t.order = append(t.order, uid)
	}
	return p
}

// worker notes that a worker began with a pod.
func (t *truth) worker(k *worker) {
	p := t.of(k.uid)
	p.key, p.pod = pod.KeyOf(k.pod), k.pod
	if stop := k.rec.Stop; stop != nil && p.stop == nil {
		// It reached the disk while its agent died.
		p.stop = &stopTruth{asked: t.w.now, deadline: t.w.now + stop.Deadline.Until(t.w.stamp())}
	}
}

// faulted notes that a fault can have an effect on a pod for so long.
func (t *truth) faulted(uid types.UID, lasts time.Duration) {
	if uid == "" {
		t.faultedAll(lasts)
		return
	}
	p := t.of(uid)
	p.trouble = max(p.trouble, t.w.now+lasts)
}

func (t *truth) faultedAll(lasts time.Duration) {
	for _, uid := range t.order {
		t.faulted(uid, lasts)
	}
}

// durable notes what is on the disk now.
func (t *truth) durable(uid types.UID, rec pod.Record) {
	p := t.of(uid)
	p.record = rec
	if rec.Stop != nil && p.stop != nil {
		kept := *p.stop
		p.kept = &kept
	}
	if r := rec.RestartAll; r != nil {
		p.rounds = max(p.rounds, p.triggers[r.TriggerID]+1)
	}
	for name, cr := range rec.Containers {
		for attempt, k := range p.made[name] {
			if attempt < cr.Attempts {
				k.disk = true
			}
		}
	}
	for _, r := range p.runs {
		cr := rec.Containers[r.c.Name]
		r.running.disk = r.running.disk || cr.Running == r.c.ID
		for _, e := range []*pod.Exit{cr.Exit, cr.Previous} {
			if e != nil && e.ContainerID == r.c.ID {
				r.running.disk = true
				r.exit.disk = r.exit.disk || e.Reason != "ContainerStatusUnknown"
			}
		}
		r.replaced.disk = r.replaced.disk || cr.Replacing == r.c.ID
		if cr.Probed.ContainerID == r.c.ID {
			r.judgedOnDisk = cr.Probed
		}
	}
}

// created notes a new instance: INV-11, its number was never used before.
func (t *truth) created(c *container) {
	p := t.of(c.uid)
	byAttempt := p.made[c.Name]
	if byAttempt == nil {
		byAttempt = map[uint32]*knowledge{}
		p.made[c.Name] = byAttempt
	}
	if k := byAttempt[c.Attempt]; k != nil && k.known(t.w) && k.ran {
		t.w.violate("INV-11", "attempt %d of %s of %s is made a second time", c.Attempt, c.Name, c.uid)
	}
	byAttempt[c.Attempt] = &knowledge{}
	t.dirty = true
}

// intruded notes an instance that somebody else made: what it does to the order
// of things is not the agent's doing.
func (t *truth) intruded(c *container) {
	p := t.of(c.uid)
	p.intruded = true
	if p.made[c.Name] == nil {
		p.made[c.Name] = map[uint32]*knowledge{}
	}
	p.made[c.Name][c.Attempt] = &knowledge{}
}

func (t *truth) started(c *container) {
	p := t.of(c.uid)
	c.run = &run{c: c, round: p.round, began: t.w.now, listed: true}
	p.runs = append(p.runs, c.run)
	p.made[c.Name][c.Attempt].ran = true
	t.dirty = true
}

func (t *truth) ended(c *container) {
	c.run.over, c.run.ended, c.run.code, c.run.boot = true, t.w.now, c.ExitCode, t.w.boots
	if c.run.code == 0 && c.Reason == "OOMKilled" {
		c.run.code = 137
	}
	t.dirty = true
}

func (t *truth) removed(c *container) {
	if c.run != nil {
		c.run.listed = false
	}
	t.dirty = true
}

// viewed writes down what a worker sees.
func (t *truth) viewed(uid types.UID, o pod.Observation) {
	t.w.logf("%s: sees %s", uid, sight(t.w, o))
}

// observed notes what the worker of a pod knows now: what it planned from.
func (t *truth) observed(uid types.UID, o pod.Observation) {
	p := t.of(uid)
	for _, c := range o.Containers {
		if k := p.made[c.Name][c.Attempt]; k != nil {
			k.gen = t.w.gen
		}
		for _, r := range p.runs {
			if r.c.ID != c.ID {
				continue
			}
			if c.State == pod.StateRunning {
				r.running.gen = t.w.gen
			}
			if newest, _ := o.Latest(c.Name); c.State == pod.StateExited && newest.ID == c.ID {
				r.running.gen, r.exit.gen = t.w.gen, t.w.gen
				if r.seenEnd == 0 {
					r.seenEnd = t.w.now
				}
			}
		}
	}
}

// judged notes a verdict of a probe.
func (t *truth) judged(c *container, v pod.Verdicts) {
	c.run.judged = c.run.judged.Merge(v)
	if v.Startup == pod.Failed || v.Liveness == pod.Failed {
		c.run.failedVerdict = true
	}
	if v.Startup == pod.Passed {
		c.run.startupVerdict = true
	}
}

// agentDied forgets what only the agent's memory held.
func (t *truth) agentDied() {
	for _, uid := range t.order {
		p := t.pods[uid]
		p.stop = nil
		if p.record.Phase < pod.PhaseTerminated {
			p.shown = "" // it was told before it was on the disk
		}
		if p.kept != nil {
			kept := *p.kept
			p.stop = &kept
		}
		p.grace, p.round = 0, p.rounds
		maps.DeleteFunc(p.triggers, func(_ string, round int) bool { return round >= p.rounds })
		for _, r := range p.runs {
			if !r.exit.disk {
				r.seenEnd = 0
			}
			if !r.replaced.disk {
				r.ousted = false
			}
			r.judged = r.judgedOnDisk
		}
		p.counts = map[string]int32{}
		for name, cr := range p.record.Containers {
			if cr.Attempts > 0 {
				p.counts[name] = int32(cr.Attempts) - 1 //nolint:gosec // small
			}
		}
	}
}

// stateLost forgets what the disk held: whatever it would have proven is void.
func (t *truth) stateLost() {
	for _, uid := range t.order {
		p := t.pods[uid]
		p.stop, p.kept, p.shown, p.record = nil, nil, "", pod.Record{}
		p.counts = map[string]int32{}
		p.waits = map[string]*patience{}
		p.adopted, p.triggers = true, map[string]int{}
		for _, byAttempt := range p.made {
			for _, k := range byAttempt {
				*k = knowledge{}
			}
		}
		for _, r := range p.runs {
			r.running, r.exit, r.ousted, r.seenEnd = knowledge{}, knowledge{}, false, 0
			r.judged, r.judgedOnDisk = pod.Verdicts{}, pod.Verdicts{}
		}
	}
}

func (t *truth) rebooted() { t.dirty = true }

// finished checks that nothing of a pod is left when its worker says so.
func (t *truth) finished(k *worker) {
	p := t.of(k.uid)
	for _, c := range t.w.machine.containers {
		if c.uid == k.uid && c.alive {
			t.w.violate("PW-2", "%s is finished while %s runs", k.uid, c.ID)
		}
	}
	p.record, p.counts, p.grace = pod.Record{}, map[string]int32{}, 0
	p.stop, p.kept, p.shown = nil, nil, "" // all is forgotten; what lands late is ended as a stray
}

// runsOf returns the runs of a container, oldest first, without those that
// somebody else made and that are over.
func (p *podTruth) runsOf(name string) []*run {
	var list []*run
	for _, r := range p.runs {
		if r.c.Name == name && (!r.c.intruder || !r.over) {
			list = append(list, r)
		}
	}
	return list
}

// exitKnown says that the agent can know how a run ended.
func (t *truth) exitKnown(r *run) bool { return r.over && (r.listed || r.exit.known(t.w)) }

func (t *truth) alive(uid types.UID) []*container {
	var list []*container
	for _, c := range t.w.machine.containers {
		if c.uid == uid && c.alive {
			list = append(list, c)
		}
	}
	return list
}

// sight is an observation in one line.
func sight(w *world, o pod.Observation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "(%v ago)", w.steady().Sub(o.TakenAt))
	for _, s := range o.Sandboxes {
		fmt.Fprintf(&b, " %s ready=%t", s.ID, s.Ready)
	}
	for _, c := range o.Containers {
		fmt.Fprintf(&b, " %s(%s %d) %v", c.ID, c.Name, c.Attempt, c.State)
	}
	return b.String()
}
