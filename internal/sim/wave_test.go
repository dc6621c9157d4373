package sim

import (
	"time"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

type pull struct {
	action plan.Action
	scope  *scope
	wanted bool
}

func (k *worker) wantPulls(actions []plan.Action) {
	wanted := map[string]plan.Action{}
	for _, a := range actions {
		wanted[a.Container] = a
	}
	for _, name := range sortedKeys(k.pulls) {
		p := k.pulls[name]
		if a, ok := wanted[name]; !ok || a != p.action {
			p.wanted = false
			p.scope.cancel()
		}
	}
	for _, a := range actions {
		if k.pulls[a.Container] != nil {
			continue
		}
		p := &pull{action: a, scope: &scope{}, wanted: true}
		k.pulls[a.Container] = p
		k.w.machine.pullImage(p.scope, k.uid, a.Image, func(ref string, err error) {
			k.turn(func() { k.pullDone(p, ref, err) })
		})
	}
}

func (k *worker) pullDone(p *pull, ref string, err error) {
	delete(k.pulls, p.action.Container)
	if p.wanted {
		k.rec = plan.Settle(k.rec, []plan.Result{{Action: p.action, Err: err, Image: ref}}, plan.DefaultLimits(), k.w.stamp())
	}
}

// startWave stores a critical record, runs the actions and inspects the pod.
func (k *worker) startWave(next plan.Plan, critical bool) {
	k.wave = &scope{}
	k.inWave = k.pod
	if len(next.Wave) > 0 {
		k.repeats++
		k.slowed = false
	}
	r := &waveRun{k: k, scope: k.wave, next: next, rec: k.rec, run: next.Wave}
	for _, a := range next.Wave {
		k.w.logf("%s: %v", k.uid, a)
	}
	if !critical {
		k.write()
		r.begin()
		return
	}
	text := encode(k.rec)
	k.writing = true
	k.w.disk.putRecord(k.uid, k.rec, text, func(err error) {
		r.storeErr = err
		k.turn(func() { k.writeDone(text, r.rec, err) })
		r.begin()
	})
}

// waveRun is a wave in flight.
type waveRun struct {
	k        *worker
	scope    *scope
	next     plan.Plan
	rec      pod.Record
	run      []plan.Action
	results  []plan.Result
	left     int
	ended    time.Time
	storeErr error
}

func (r *waveRun) begin() {
	if !r.k.alive() {
		return
	}
	if r.storeErr != nil && r.rec.Phase == pod.PhaseSyncing {
		r.run = nil
	}
	r.results = make([]plan.Result, len(r.run))
	r.left = len(r.run)
	var starts []int
	for i, a := range r.run {
		if a.Op == plan.OpStartContainer {
			starts = append(starts, i)
			continue
		}
		r.one(i, func() {})
	}
	r.inOrder(starts)
	if r.left == 0 {
		r.over()
	}
}

// inOrder runs starts one after another.
func (r *waveRun) inOrder(starts []int) {
	if len(starts) > 0 {
		r.one(starts[0], func() { r.inOrder(starts[1:]) })
	}
}

func (r *waveRun) one(i int, then func()) {
	a := r.run[i]
	done := func(err error) {
		if !r.k.alive() {
			return
		}
		r.results[i] = plan.Result{Action: a, Err: err}
		then()
		if r.left--; r.left == 0 {
			r.over()
		}
	}
	if !r.scope.cancelled {
		r.k.w.truth.acting(r.k, a)
	}
	r.k.perform(r.scope, a, done)
}

// perform sends the call of one action.
func (k *worker) perform(s *scope, a plan.Action, done func(error)) {
	m := k.w.machine
	switch a.Op {
	case plan.OpSetUpVolumes, plan.OpTearDownVolumes:
		k.w.after(k.w.between(0, 20*time.Millisecond), func() {
			if k.w.chaos.volumeFails() {
				done(callError(pod.ClassUnknown, a.Op.String()))
				return
			}
			done(nil)
		})
	case plan.OpCreateSandbox:
		m.createSandbox(s, k.inWave, k.specHash, a.Attempt, done)
	case plan.OpStopSandbox:
		m.stopSandbox(s, k.uid, a.ID, done)
	case plan.OpRemoveSandbox:
		m.removeSandbox(s, k.uid, a.ID, done)
	case plan.OpCreateContainer:
		spec, kind := pod.Find(&k.inWave.Spec, a.Container)
		m.createContainer(s, k.inWave, spec, kind, a.ID, a.Attempt, done)
	case plan.OpStartContainer:
		m.startContainer(s, k.uid, a.ID, done)
	case plan.OpStopContainer:
		m.stopContainer(s, k.uid, a.ID, time.Duration(a.GraceSeconds)*time.Second, done)
	case plan.OpKillContainer:
		m.killContainer(s, k.uid, a.ID, done)
	case plan.OpRemoveContainer:
		m.removeContainer(s, k.uid, a.ID, done)
	default:
		panic("unknown operation " + a.Op.String())
	}
}

// over ends the wave with a look at the pod.
func (r *waveRun) over() {
	k := r.k
	r.ended = k.w.steady()
	k.w.machine.inspect(&scope{}, k.uid, inspectTimeout, func(o pod.Observation, err error) {
		k.turn(func() { k.waveDone(r, o, err) })
	})
}

func (k *worker) waveDone(r *waveRun, o pod.Observation, inspectErr error) {
	r.scope.cancel()
	k.wave = nil
	k.actedAt = r.ended
	k.rec = plan.Settle(k.rec, r.results, plan.DefaultLimits(), k.w.stamp())
	if inspectErr != nil {
		k.inspectFailures++
		k.notBefore = k.w.now + min(inspectRetryMin<<min(k.inspectFailures-1, 10), inspectRetryMax)
		return
	}
	k.inspectFailures = 0
	k.notBefore = 0
	k.observed = o
	k.w.truth.viewed(k.uid, o)
}
