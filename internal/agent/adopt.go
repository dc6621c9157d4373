package agent

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
)

// recover starts the workers of all instances in the store. They need no
// source: ownership comes from the durable record.
func (d *desired) recover(instances []pod.Instance) {
	slices.SortFunc(instances, func(a, b pod.Instance) int {
		return cmp.Or(pod.KeyOf(a.Pod).Compare(pod.KeyOf(b.Pod)), cmp.Compare(leaving(a), leaving(b)),
			b.Pod.CreationTimestamp.Compare(a.Pod.CreationTimestamp.Time), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	for _, in := range instances {
		key := pod.KeyOf(in.Pod)
		e := d.entries[key]
		if e == nil {
			e = &entry{}
			d.entries[key] = e
		}
		if e.current != nil {
			// Two instances of one key are left over: the one that was leaving, or else
			// the older one, ends on its own.
			klog.InfoS("Two instances of a pod are stored, ending one", "pod", key, "podUID", in.Pod.UID)
			d.orphan(in)
			continue
		}
		if leaving(in) == 0 {
			e.user = in.User
		}
		d.claimPorts(in)
		d.run(e, in.User, in.Pod, in.Record)
	}
}

// leaving is 1 for an instance that is on its way out, and 0 for another.
func leaving(in pod.Instance) int {
	if in.Record.Stop != nil && in.Record.Stop.Delete {
		return 1
	}
	return 0
}

// claimPorts books the host ports of a pod that may be running.
func (d *desired) claimPorts(in pod.Instance) {
	if in.Record.Phase < pod.PhaseTerminated && in.Record.Sandbox.Attempts > 0 {
		d.a.ports.Adopt(in.Pod)
	}
}

// orphan runs an instance to its end, outside of any entry.
func (d *desired) orphan(in pod.Instance) {
	key := pod.KeyOf(in.Pod)
	d.byUID[in.Pod.UID] = key
	d.claimPorts(in)
	box := d.begin(in.User, in.Pod, in.Record)
	if o, ok := d.strays[in.Pod.UID]; ok {
		delete(d.strays, in.Pod.UID)
		box.PutObservation(o)
	}
	box.PutStop(pod.StopRequest{Delete: true})
}

// inventory takes the first listing of the runtime: what is not known by record
// waits to be adopted or ended.
func (d *desired) inventory(pods map[types.UID]pod.Observation) {
	for uid, o := range pods {
		d.seen(uid, o)
	}
	d.listed = true
	d.settleAll()
	d.endStrays()
	d.admit()
}

// seen dispatches an observation to the worker of its pod, or keeps it as one
// of a stray.
func (d *desired) seen(uid types.UID, o pod.Observation) {
	if box := d.a.workers.Get(uid); box != nil {
		box.PutObservation(o)
		return
	}
	if len(o.Sandboxes)+len(o.Containers) == 0 {
		delete(d.strays, uid)
		return
	}
	d.strays[uid] = o
}

// adopt makes a running pod that has no record the instance of a key, when it
// was made from the same spec. One that was made from another spec ends first.
// It returns false when nothing runs under the key.
func (d *desired) adopt(key pod.Key, e *entry) bool {
	uids := d.straysOf(key)
	if len(uids) == 0 {
		return false
	}
	for _, uid := range uids[1:] {
		d.endStray(uid)
	}
	uid := uids[0]
	identity, _ := d.strays[uid].Identity()
	if !pod.SameHash(identity.Spec, pod.SpecHash(e.user)) {
		p := reconstruct(uid, d.strays[uid])
		p.CreationTimestamp = metav1.NewTime(oldest(d.strays[uid]))
		// Its end is on record from the start: it is not to be taken for the wanted
		// one by an agent that comes after this one.
		rec := plan.RequestStop(pod.Record{}, p, pod.StopRequest{Delete: true, Reason: "Replaced"}, d.a.now())
		d.start(e, p, p, rec)
		return true
	}
	p := source.Apply(nil, e.user, uid)
	p.CreationTimestamp = metav1.NewTime(oldest(d.strays[uid]))
	d.a.ports.Adopt(p)
	d.start(e, e.user, p, pod.Record{})
	d.a.event(e.current.pod, "", corev1.EventTypeNormal, "Adopted", "The pod was running already; its record was lost")
	return true
}

// straysOf returns the strays of a key, the newest sandbox first.
func (d *desired) straysOf(key pod.Key) []types.UID {
	var uids []types.UID
	for uid, o := range d.strays {
		if id, ok := o.Identity(); ok && id.Key == key {
			uids = append(uids, uid)
		}
	}
	slices.SortFunc(uids, func(a, b types.UID) int {
		return cmp.Or(newest(d.strays[b]).Compare(newest(d.strays[a])), cmp.Compare(a, b))
	})
	return uids
}

// endStrays ends what runs and is wanted by nobody, once everybody has spoken
// and the runtime was listed (INV-6).
func (d *desired) endStrays() {
	if !d.ready() || !d.listed {
		return
	}
	for uid, o := range d.strays {
		if d.a.workers.Get(uid) != nil {
			delete(d.strays, uid)
			continue
		}
		if id, ok := o.Identity(); ok && d.unsure(identityPod(id)) {
			continue
		}
		d.endStray(uid)
	}
}

// endStray runs a stray to its end with its own grace, known from its labels
// (TRM-13).
func (d *desired) endStray(uid types.UID) {
	p := reconstruct(uid, d.strays[uid])
	klog.V(1).InfoS("Ending a pod that no source wants", "pod", klog.KObj(p), "podUID", uid)
	rec := plan.RequestStop(pod.Record{}, p, pod.StopRequest{Delete: true}, d.a.now())
	in := pod.Instance{User: p, Pod: p, Record: rec}
	d.writeNew(in)
	d.orphan(in)
}

// reconstruct makes a pod from what the runtime's labels tell, enough to end it
// in order.
func reconstruct(uid types.UID, o pod.Observation) *corev1.Pod {
	id, _ := o.Identity()
	p := identityPod(id)
	p.UID = uid
	always := corev1.ContainerRestartPolicyAlways
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
		case pod.KindNormal, pod.KindUnknown:
			p.Spec.Containers = append(p.Spec.Containers, spec)
		}
	}
	return p
}

func identityPod(id pod.Identity) *corev1.Pod {
	grace := id.GraceSeconds
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: id.Key.Namespace, Name: id.Key.Name, UID: id.UID,
			Annotations: map[string]string{pod.SourceAnnotation: id.Source, pod.OriginAnnotation: id.Origin},
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyNever},
	}
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

func newest(o pod.Observation) time.Time {
	var at time.Time
	for _, s := range o.Sandboxes {
		if s.CreatedAt.After(at) {
			at = s.CreatedAt
		}
	}
	return at
}
