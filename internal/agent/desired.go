package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/podworkers"
)

// entry is what is wanted, and what is there, under one key.
type entry struct {
	// user is the pod that a source wants, nil when none wants one any more.
	user *corev1.Pod
	// current is the instance at work, nil when there is none yet.
	current *instance
}

// instance is one pod instance with a worker.
type instance struct {
	user *corev1.Pod // the version at work, as its author wrote it
	pod  *corev1.Pod // the effective pod
	box  *podworkers.Mailbox
	// stopping says that a stop with deletion was requested.
	stopping bool
}

// desired is the desired set. It belongs to syncLoop.
type desired struct {
	a       *Agent
	entries map[pod.Key]*entry
	byUID   map[types.UID]pod.Key
	// strays are pods that run and that nobody wanted so far, by UID.
	strays map[types.UID]pod.Observation
	// unwritten is what could not be stored about a pod, by UID.
	unwritten map[types.UID]func() error
	// listed says that the runtime was listed once: until then a pod that is new
	// to us may run already, so none is admitted.
	listed bool
	// sources is the newest set of each source that delivered.
	sources map[string]source.Set
	// waiting are the pods that are to be started as soon as there is room, and
	// whether that was told.
	waiting map[pod.Key]bool
	// told are the problems that were reported, and refused those of names that
	// two sources want, as of the newest sets.
	told    map[source.Problem]bool
	refused map[source.Problem]bool
}

// reasonDuplicate is told of a pod whose name another source holds.
const reasonDuplicate = "Duplicate"

func newDesired(a *Agent) *desired {
	return &desired{
		a: a, entries: map[pod.Key]*entry{}, byUID: map[types.UID]pod.Key{},
		strays: map[types.UID]pod.Observation{}, unwritten: map[types.UID]func() error{}, sources: map[string]source.Set{}, told: map[source.Problem]bool{},
		waiting: map[pod.Key]bool{},
	}
}

// ready reports whether every source delivered once (CFG-8).
func (d *desired) ready() bool { return len(d.sources) >= len(d.a.sources) }

// apply takes the newest set of a source. What is wanted is settled before what
// is not, so that a pod which moves from one source to another runs on.
func (d *desired) apply(set source.Set) {
	d.sources[set.Source] = set
	d.report(set)
	d.a.keepObjects(set)
	d.refused = map[source.Problem]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.sources)) {
		d.wantAll(d.sources[name])
	}
	maps.DeleteFunc(d.told, func(p source.Problem, _ bool) bool { return p.Reason == reasonDuplicate && !d.refused[p] })
	// INV-6: nothing ends for not being wanted before all sources have spoken.
	if d.ready() {
		d.prune()
	}
	d.admit()
}

// wantAll makes the pods of a set what is wanted under their keys. A key that
// another source holds stays with it; one that has not spoken yet may hold it.
func (d *desired) wantAll(set source.Set) {
	for _, p := range set.Pods {
		key := pod.KeyOf(p)
		if e := d.entries[key]; e != nil && e.user != nil && pod.Source(e.user) != set.Source {
			holder := pod.Source(e.user)
			if d.wants(holder, key) || d.unsure(e.user) {
				d.refuse(p, e.user)
				continue
			}
			if _, spoke := d.sources[holder]; !spoke && d.configured(holder) {
				continue
			}
		}
		d.want(key, p)
	}
}

func (d *desired) configured(name string) bool {
	return slices.ContainsFunc(d.a.sources, func(s feed) bool { return s.name == name })
}

// wants reports whether the newest set of a source has the key.
func (d *desired) wants(name string, key pod.Key) bool {
	return slices.ContainsFunc(d.sources[name].Pods, func(p *corev1.Pod) bool { return pod.KeyOf(p) == key })
}

func (d *desired) refuse(p, holder *corev1.Pod) {
	problem := source.Problem{
		Origin: pod.Origin(p), Object: pod.KeyOf(p), Kind: "Pod", Field: "metadata.name", Reason: reasonDuplicate,
		Message: fmt.Sprintf("cannot use Pod %s of %s: %s already holds one of this name", pod.KeyOf(p), pod.Origin(p), pod.Origin(holder)),
	}
	d.refused[problem] = true
	if !d.told[problem] {
		d.told[problem] = true
		d.a.problem(problem)
	}
}

// report tells each problem once, as long as it lasts.
func (d *desired) report(set source.Set) {
	now := map[source.Problem]bool{}
	for _, other := range d.sources {
		for _, p := range other.Problems {
			now[p] = true
		}
	}
	for _, p := range set.Problems {
		if !d.told[p] {
			d.a.problem(p)
		}
	}
	for p := range d.told {
		if !now[p] && p.Reason != reasonDuplicate {
			delete(d.told, p)
		}
	}
	for p := range now {
		d.told[p] = true
	}
}

// prune ends what no source wants.
func (d *desired) prune() {
	for key, e := range d.entries {
		if e.user != nil && (d.wants(pod.Source(e.user), key) || d.unsure(e.user)) {
			continue
		}
		d.unwant(key, e)
	}
	d.endStrays()
}

// unsure reports whether the pod may be wanted by an origin that could not be
// read as a whole (INV-25).
func (d *desired) unsure(p *corev1.Pod) bool {
	return slices.Contains(d.sources[pod.Source(p)].Unknown, pod.Origin(p))
}

// want makes the pod of a source what is wanted under its key.
func (d *desired) want(key pod.Key, user *corev1.Pod) {
	e := d.entries[key]
	if e == nil {
		e = &entry{}
		d.entries[key] = e
	}
	if e.user == user && e.current != nil {
		return // a source that did not read it again sends the same one
	}
	e.user = user
	d.settle(key, e)
}

// settle brings what is at work under a key closer to what is wanted.
func (d *desired) settle(key pod.Key, e *entry) {
	switch {
	case e.user == nil && e.current == nil:
		delete(d.entries, key)
	case e.user == nil:
		d.stop(e.current, "")
	case e.current == nil && !d.listed:
		d.a.board.pending(e.user)
	case e.current == nil && d.busy(key):
		// It starts when that one is finished.
	case e.current == nil:
		if !d.adopt(key, e) {
			d.await(key)
		}
	case !e.current.stopping:
		d.change(e)
	}
}

// change applies a new version of a pod to the instance at work, in place where
// that is possible.
func (d *desired) change(e *entry) {
	c := e.current
	class := source.Classify(c.user, e.user)
	klog.V(2).InfoS("A pod changed", "pod", klog.KObj(c.pod), "class", class)
	switch class {
	case source.None:
		if pod.Origin(c.user) == pod.Origin(e.user) {
			return
		}
	case source.Metadata, source.Swap:
	case source.Resize, source.Replace:
		// A resize in place is not supported yet: a new instance has the new sizes.
		d.a.event(c.pod, "", corev1.EventTypeNormal, "Replacing",
			"The pod changed in a way that needs a new instance; this one ends first, within its own grace")
		d.stop(c, "Replaced")
		return
	}
	c.user = e.user
	c.pod = d.a.effective(source.Apply(c.pod, e.user, c.pod.UID))
	d.writeSpecs(pod.Instance{User: c.user, Pod: c.pod})
	if class == source.Swap {
		d.a.event(c.pod, "", corev1.EventTypeNormal, "InPlaceUpdate", "Container images changed; the containers are swapped in place")
	}
	c.box.PutPod(c.pod)
	d.notes(c.user, c.pod)
}

// start stores an instance and starts its worker. user is the version that the
// instance was made from.
func (d *desired) start(e *entry, user, p *corev1.Pod, rec pod.Record) {
	if p.CreationTimestamp.IsZero() {
		p.CreationTimestamp = metav1.Now()
	}
	if rec.Started.IsZero() {
		rec.Started = pod.Back(p.CreationTimestamp.Time, d.a.now())
	}
	p = d.a.effective(p)
	d.writeNew(pod.Instance{User: user, Pod: p, Record: rec})
	d.run(e, user, p, rec)
	d.notes(user, p)
}

// notes tells which fields of a pod can make no difference here: none is
// ignored in silence.
func (d *desired) notes(user, p *corev1.Pod) {
	for _, note := range apis.WithoutEffect(user) {
		d.a.event(p, "", corev1.EventTypeNormal, "WithoutEffect", note)
	}
}

// run starts the worker of an instance that is stored already.
func (d *desired) run(e *entry, user, p *corev1.Pod, rec pod.Record) {
	key := pod.KeyOf(p)
	e.current = &instance{user: user, pod: p, stopping: rec.Stop != nil && rec.Stop.Delete}
	d.byUID[p.UID] = key
	d.a.board.drop(key)
	e.current.box = d.begin(user, p, rec)
	if o, ok := d.strays[p.UID]; ok {
		delete(d.strays, p.UID)
		e.current.box.PutObservation(o)
	}
}

// begin starts a worker. What was known of the pod is shown at once: a pod that
// runs must not be missing from the list until it is inspected.
func (d *desired) begin(user, p *corev1.Pod, rec pod.Record) *podworkers.Mailbox {
	status := rec.Status
	if status == nil {
		status = &corev1.PodStatus{Phase: corev1.PodPending}
	}
	d.a.board.put(podworkers.Report{Pod: p, Status: status, Phase: rec.Phase, Deletion: podworkers.Deletion(rec), Record: rec})
	d.a.courses.begin(p.UID, status.Phase)
	return d.a.workers.Start(p, pod.SpecHash(user), rec)
}

func (d *desired) newUID(user *corev1.Pod) types.UID {
	if _, taken := d.byUID[user.UID]; user.UID != "" && !taken {
		return user.UID
	}
	return types.UID(uuid.NewString())
}

// unwant ends a pod that nobody wants any more.
func (d *desired) unwant(key pod.Key, e *entry) {
	e.user = nil
	if e.current == nil {
		d.a.board.drop(key)
	}
	d.settle(key, e)
}

func (d *desired) stop(c *instance, reason string) {
	if c.stopping {
		return
	}
	c.stopping = true
	c.box.PutStop(pod.StopRequest{Delete: true, Reason: reason})
}

// finished forgets an instance of which nothing is left, and starts what waits
// under its key.
func (d *desired) finished(uid types.UID) {
	key, known := d.byUID[uid]
	if !known {
		return
	}
	delete(d.byUID, uid)
	d.a.workers.Forget(uid)
	d.a.board.forget(uid)
	d.write(uid, func() error { return d.a.store.Delete(uid) })
	e := d.entries[key]
	if e == nil {
		return
	}
	if e.current != nil && e.current.pod.UID == uid {
		e.current = nil
	}
	d.settle(key, e)
	d.admitFirst(key)
}

// busy reports whether an instance of the key is still on its way out (INV-4).
func (d *desired) busy(key pod.Key) bool {
	for _, k := range d.byUID {
		if k == key {
			return true
		}
	}
	return false
}

// settleAll starts what waited for the runtime to be listed.
func (d *desired) settleAll() {
	keys := make([]pod.Key, 0, len(d.entries))
	for key := range d.entries {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, pod.Key.Compare)
	for _, key := range keys {
		if e := d.entries[key]; e != nil {
			d.settle(key, e)
		}
	}
}

// sourceNames returns the sources that have not spoken yet.
func (d *desired) missingSources() string {
	var missing []string
	for _, s := range d.a.sources {
		if _, spoke := d.sources[s.name]; !spoke {
			missing = append(missing, s.name)
		}
	}
	return strings.Join(missing, ", ")
}
