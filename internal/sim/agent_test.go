package sim

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/gc"
	"nodelet.dev/nodelet/internal/pod"
)

const (
	gcPeriod     = time.Minute
	resyncPeriod = 90 * time.Second
)

// agent is one process of nodelet: the desired set, its workers and the PLEG.
type agent struct {
	w       *world
	gen     int
	workers map[types.UID]*worker
	entries map[pod.Key]*entry
	strays  map[types.UID]pod.Observation
	listed  bool // the runtime was listed once
	ready   bool // the source has delivered once
	last    map[types.UID]pod.Observation
	looking map[types.UID]bool
	gone    map[types.UID]time.Time // when a pod was finished
	probes  map[probeKey]*probeActor
}

// entry is what is wanted and what is at work under one key.
type entry struct {
	user    *corev1.Pod
	grace   *int64 // of the deletion, when the user asked for one
	current *instance
}

type instance struct {
	user, pod *corev1.Pod
	worker    *worker
	stopping  bool
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedByKey[V any](m map[pod.Key]V) []pod.Key {
	return slices.SortedFunc(maps.Keys(m), pod.Key.Compare)
}

func compareUIDs(a, b types.UID) int { return cmp.Compare(a, b) }

// startAgent starts the next agent process.
func (w *world) startAgent() {
	if w.agent != nil {
		return
	}
	w.gen++
	a := &agent{
		w: w, gen: w.gen, workers: map[types.UID]*worker{}, entries: map[pod.Key]*entry{},
		strays: map[types.UID]pod.Observation{}, last: map[types.UID]pod.Observation{}, looking: map[types.UID]bool{}, gone: map[types.UID]time.Time{},
		probes: map[probeKey]*probeActor{},
	}
	w.agent = a
	w.logf("agent %d starts", w.gen)
	a.recover()
	w.after(w.between(time.Millisecond, time.Second), a.deliver)
	w.after(w.between(time.Millisecond, time.Second), a.relist)
	w.after(gcPeriod, a.collect)
	w.after(resyncPeriod, a.resync)
}

// killAgent is kill -9.
func (w *world) killAgent() {
	if w.agent == nil {
		return
	}
	w.logf("agent %d is killed", w.gen)
	w.agent = nil
	w.gen++ // whatever still runs for the old one is void
	w.machine.forsake()
	w.machine.dropAsked()
	w.truth.agentDied()
}

func (a *agent) alive() bool { return a.gen == a.w.gen }

func (a *agent) recover() {
	for _, in := range a.w.disk.all() {
		key := pod.KeyOf(in.Pod)
		e := a.entry(key)
		if e.current != nil {
			a.run(nil, in.User, in.Pod, in.Record).putStop(pod.StopRequest{Delete: true})
			continue
		}
		if in.Record.Stop == nil || !in.Record.Stop.Delete {
			e.user = in.User
		}
		a.run(e, in.User, in.Pod, in.Record)
	}
}

func (a *agent) entry(key pod.Key) *entry {
	e := a.entries[key]
	if e == nil {
		e = &entry{}
		a.entries[key] = e
	}
	return e
}

// deliver is the source: the newest manifests, whole.
func (a *agent) deliver() {
	if !a.alive() {
		return
	}
	a.ready = true
	for _, key := range sortedByKey(a.w.user.wanted) {
		e := a.entry(key)
		e.user, e.grace = a.w.user.wanted[key].pod, nil
		a.settle(key, e)
	}
	for _, key := range sortedByKey(a.entries) {
		if m := a.w.user.wanted[key]; m == nil {
			e := a.entries[key]
			e.user = nil
			if g, ok := a.w.user.graces[key]; ok {
				e.grace = &g
			}
			a.settle(key, e)
		}
	}
	a.endStrays()
}

func (a *agent) settle(key pod.Key, e *entry) {
	switch {
	case e.user == nil && e.current == nil:
		delete(a.entries, key)
	case e.user == nil:
		a.stop(e.current, e.grace)
	case e.current == nil && (!a.listed || a.busy(key)):
	case e.current == nil:
		if !a.adopt(key, e) {
			a.start(e, a.w.user.instantiate(e.user), pod.Record{})
		}
	case !e.current.stopping:
		a.change(e)
	}
}

func (a *agent) busy(key pod.Key) bool {
	for _, k := range a.workers {
		if pod.KeyOf(k.pod) == key {
			return true
		}
	}
	return false
}

func (a *agent) change(e *entry) {
	c := e.current
	if c.user == e.user {
		return
	}
	if pod.SpecHash(c.user) != pod.SpecHash(e.user) {
		a.stop(c, nil)
		return
	}
	c.user = e.user
	p := e.user.DeepCopy()
	p.UID, p.CreationTimestamp = c.pod.UID, c.pod.CreationTimestamp
	c.pod = p
	a.putPodUntilStored(pod.Instance{User: c.user, Pod: c.pod})
	c.worker.putPod(c.pod)
}

// putPodUntilStored tries again while the disk is full, unless there is a newer
// version: the next agent would bring back the old one.
func (a *agent) putPodUntilStored(in pod.Instance) {
	if !a.w.disk.full {
		a.w.disk.putPod(in)
		return
	}
	a.w.after(storeRetry, func() {
		if e := a.entries[pod.KeyOf(in.Pod)]; a.alive() && e != nil && e.current != nil && e.current.pod == in.Pod {
			a.putPodUntilStored(in)
		}
	})
}

func (a *agent) start(e *entry, p *corev1.Pod, rec pod.Record) {
	if p.CreationTimestamp.IsZero() {
		p.CreationTimestamp = metav1.NewTime(a.w.wall()).Rfc3339Copy()
	}
	if rec.Started.IsZero() {
		rec.Started = pod.Back(p.CreationTimestamp.Time, a.w.stamp())
	}
	a.putUntilStored(pod.Instance{User: e.user, Pod: p, Record: rec})
	a.run(e, e.user, p, rec)
}

// putUntilStored stores an instance, and tries again while the disk is full: a
// record cannot be stored of an instance that is not there.
func (a *agent) putUntilStored(in pod.Instance) {
	if a.w.disk.put(in) == nil {
		return
	}
	a.w.after(storeRetry, func() {
		if !a.alive() || a.workers[in.Pod.UID] == nil {
			return
		}
		if e := a.entries[pod.KeyOf(in.Pod)]; e != nil && e.current != nil && e.current.pod.UID == in.Pod.UID {
			in.User, in.Pod = e.current.user, e.current.pod
		}
		a.putUntilStored(in)
	})
}

func (a *agent) run(e *entry, user, p *corev1.Pod, rec pod.Record) *worker {
	k := newWorker(a, p, pod.SpecHash(user), rec)
	a.workers[p.UID] = k
	if e != nil {
		e.current = &instance{user: user, pod: p, worker: k, stopping: rec.Stop != nil && rec.Stop.Delete}
	}
	a.w.truth.worker(k)
	if o, ok := a.strays[p.UID]; ok {
		delete(a.strays, p.UID)
		k.putObservation(o)
	}
	return k
}

func (a *agent) stop(c *instance, grace *int64) {
	if c.stopping && grace == nil {
		return
	}
	c.stopping = true
	c.worker.putStop(pod.StopRequest{Delete: true, GraceSeconds: grace})
}

func (a *agent) finished(k *worker) {
	a.w.logf("%s is finished", k.uid)
	a.w.truth.finished(k)
	a.gone[k.uid] = a.w.steady()
	a.forget(k)
}

// forget removes an instance from the disk, which may take until there is room,
// and only then lets the next one of its key start: an agent that restarts in
// between must not find two.
func (a *agent) forget(k *worker) {
	if a.w.disk.full {
		a.w.after(storeRetry, func() {
			if a.alive() {
				a.forget(k)
			}
		})
		return
	}
	delete(a.workers, k.uid)
	a.w.disk.remove(k.uid)
	key := pod.KeyOf(k.pod)
	if e := a.entries[key]; e != nil {
		if e.current != nil && e.current.worker == k {
			e.current = nil
		}
		a.settle(key, e)
	}
}

// adopt takes over a pod that runs without a record.
func (a *agent) adopt(key pod.Key, e *entry) bool {
	var uids []types.UID
	for _, uid := range sortedKeys(a.strays) {
		if id, ok := a.strays[uid].Identity(); ok && id.Key == key {
			uids = append(uids, uid)
		}
	}
	if len(uids) == 0 {
		return false
	}
	slices.SortStableFunc(uids, func(x, y types.UID) int {
		sx, _ := a.strays[x].Newest()
		sy, _ := a.strays[y].Newest()
		return sy.CreatedAt.Compare(sx.CreatedAt)
	})
	for _, uid := range uids[1:] {
		a.endStray(uid)
	}
	uid := uids[0]
	a.w.truth.of(uid).adopted = true
	o := a.strays[uid]
	identity, _ := o.Identity()
	if !pod.SameHash(identity.Spec, pod.SpecHash(e.user)) {
		p := reconstruct(uid, o)
		user := e.user
		e.user = p
		a.start(e, p, pod.Record{})
		e.user = user
		a.stop(e.current, nil)
		return true
	}
	p := e.user.DeepCopy()
	p.UID = uid
	p.CreationTimestamp = metav1.NewTime(oldest(o)).Rfc3339Copy()
	a.start(e, p, pod.Record{})
	return true
}

func oldest(o pod.Observation) time.Time {
	var at time.Time
	for _, s := range o.Sandboxes {
		if at.IsZero() || s.CreatedAt.Before(at) {
			at = s.CreatedAt
		}
	}
	return at
}

func (a *agent) endStrays() {
	if !a.ready || !a.listed {
		return
	}
	for _, uid := range sortedKeys(a.strays) {
		if a.workers[uid] != nil {
			delete(a.strays, uid)
			continue
		}
		a.endStray(uid)
	}
}

func (a *agent) endStray(uid types.UID) {
	p := reconstruct(uid, a.strays[uid])
	a.putUntilStored(pod.Instance{User: p, Pod: p})
	a.run(nil, p, p, pod.Record{}).putStop(pod.StopRequest{Delete: true})
}

// reconstruct makes a pod of what its labels say.
func reconstruct(uid types.UID, o pod.Observation) *corev1.Pod {
	id, _ := o.Identity()
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: id.Key.Namespace, Name: id.Key.Name, UID: uid},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &id.GraceSeconds, RestartPolicy: corev1.RestartPolicyNever},
	}
	seen := map[string]bool{}
	for _, c := range slices.Backward(o.Containers) {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		spec := corev1.Container{Name: c.Name, Image: c.Image}
		switch c.Kind {
		case pod.KindSidecar:
			spec.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, spec)
		case pod.KindInit:
			p.Spec.InitContainers = append(p.Spec.InitContainers, spec)
		case pod.KindEphemeral:
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon(spec),
			})
		default:
			p.Spec.Containers = append(p.Spec.Containers, spec)
		}
	}
	return p
}

// collect removes garbage by the rules of package gc.
func (a *agent) collect() {
	if !a.alive() {
		return
	}
	a.w.after(gcPeriod, a.collect)
	if a.w.machine.down {
		return
	}
	pods := map[types.UID]pod.Observation{}
	for _, uid := range a.w.machine.uids() {
		pods[uid] = a.w.machine.snapshot(uid)
	}
	victims := gc.Victims(pods, func(uid types.UID) bool { return a.workers[uid] != nil })
	for _, id := range victims.Containers {
		a.w.machine.removeContainer(&scope{}, "", id, func(error) {})
	}
	for _, id := range victims.Sandboxes {
		a.w.machine.removeSandbox(&scope{}, "", id, func(error) {})
	}
}

func (a *agent) resync() {
	if !a.alive() {
		return
	}
	a.w.after(resyncPeriod, a.resync)
	for _, uid := range sortedKeys(a.workers) {
		a.workers[uid].wake()
	}
}
