package events

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of the log.
const (
	maxEvents = 1000
	maxAge    = time.Hour
	// maxSimilar is how many events of one object may differ in nothing but the
	// message; what comes beyond is told in one event with the newest message.
	maxSimilar = 10
)

// Combined begins the message of an event that stands for several messages.
const Combined = "(combined from similar events): "

// Log is a bounded log of events. It is safe for concurrent use.
type Log struct {
	component string
	host      string

	mu       sync.Mutex // guards the fields below for a few lines at a time
	order    *list.List // of *corev1.Event, the one that happened last at the end
	same     map[identity]*list.Element
	similar  map[kin]int // how many events differ in nothing but the message
	revision uint64      // of the newest change
	changed  chan struct{}

	unsaved map[string]*corev1.Event // by key; nil for one that is to be forgotten
	kept    map[string]bool          // keys that a Keeper may have
	dirty   chan struct{}            // one token
}

// kin is what events have in common that differ in nothing but the message.
type kin struct {
	object corev1.ObjectReference
	kind   string
	reason string
}

// identity is what two events must have in common to be one that happened twice.
type identity struct {
	kin
	message string // empty for one that combines several
}

func identityOf(e *corev1.Event) identity {
	id := identity{kin: kin{object: e.InvolvedObject, kind: e.Type, reason: e.Reason}, message: e.Message}
	if len(e.Message) >= len(Combined) && e.Message[:len(Combined)] == Combined {
		id.message = ""
	}
	return id
}

// NewLog returns an empty log; component and host go into each event's source.
func NewLog(component, host string) *Log {
	return &Log{
		component: component, host: host, order: list.New(), same: map[identity]*list.Element{}, similar: map[kin]int{},
		changed: make(chan struct{}), unsaved: map[string]*corev1.Event{}, kept: map[string]bool{}, dirty: make(chan struct{}, 1),
	}
}

// Add records that something happened to an object. The same thing again only
// raises a count; it goes to the program's log once per doubling.
func (l *Log) Add(ref corev1.ObjectReference, kind, reason, message string) {
	e := l.add(identity{kin: kin{object: ref, kind: kind, reason: reason}, message: message}, metav1.Now())
	if e.Count&(e.Count-1) == 0 {
		write(e, message)
	}
}

func (l *Log) add(id identity, now metav1.Time) *corev1.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	message := id.message
	at, known := l.same[id]
	if !known && l.similar[id.kin] >= maxSimilar {
		id.message, message = "", Combined+message
		at, known = l.same[id]
	}
	var e corev1.Event
	if known {
		e = *eventOf(at) // readers keep what they got
		l.order.Remove(at)
	} else {
		e = l.fresh(id, now)
		l.similar[id.kin]++
	}
	e.Message = message
	e.Count++
	e.LastTimestamp = now
	l.push(id, &e)
	l.prune(now.Time)
	l.tell()
	return &e
}

// fresh returns an event that has not happened yet.
func (l *Log) fresh(id identity, now metav1.Time) corev1.Event {
	return corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: id.object.Namespace, Name: fmt.Sprintf("%s.%x.%d", id.object.Name, now.UnixNano(), l.revision), CreationTimestamp: now,
		},
		InvolvedObject: id.object, Type: id.kind, Reason: id.reason, FirstTimestamp: now,
		Source:              corev1.EventSource{Component: l.component, Host: l.host},
		ReportingController: l.component, ReportingInstance: l.host,
	}
}

// push puts an event at the end, as the newest change.
func (l *Log) push(id identity, e *corev1.Event) {
	l.revision++
	e.ResourceVersion = strconv.FormatUint(l.revision, 10)
	l.same[id] = l.order.PushBack(e)
	l.unsaved[keyOf(e)] = e
}

// prune drops what is too old or too much.
func (l *Log) prune(now time.Time) {
	for at := l.order.Front(); at != nil; at = l.order.Front() {
		e := eventOf(at)
		if l.order.Len() <= maxEvents && now.Sub(e.LastTimestamp.Time) <= maxAge {
			return
		}
		l.order.Remove(at)
		id := identityOf(e)
		delete(l.same, id)
		if l.similar[id.kin]--; l.similar[id.kin] == 0 {
			delete(l.similar, id.kin)
		}
		delete(l.unsaved, keyOf(e))
		if l.kept[keyOf(e)] {
			l.unsaved[keyOf(e)] = nil
		}
	}
}

// tell wakes those who wait for a change and the one who saves.
func (l *Log) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// List returns the events, the one that happened last at the end.
func (l *Log) List() []corev1.Event {
	list, _, _ := l.Since(0)
	return list
}

// Since returns the events that changed after a revision in the order of their
// changes, the revision of the newest change, and a channel that is closed at
// the next one. Revision 0 is before everything. An event's revision is its
// resourceVersion. Whoever is slow misses steps of a count, never an event that
// is still kept.
func (l *Log) Since(revision uint64) (changed []corev1.Event, newest uint64, next <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = []corev1.Event{}
	now := time.Now()
	for at := l.order.Back(); at != nil; at = at.Prev() {
		e := eventOf(at)
		if revisionOf(e) <= revision || now.Sub(e.LastTimestamp.Time) > maxAge {
			break
		}
		changed = append(changed, *e)
	}
	slices.Reverse(changed)
	return changed, l.revision, l.changed
}

func eventOf(at *list.Element) *corev1.Event {
	return at.Value.(*corev1.Event) //nolint:errcheck,forcetypeassert // nothing else is put in
}

// revisionOf returns when an event changed last; 0 when that cannot be read.
func revisionOf(e *corev1.Event) uint64 {
	n, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// keyOf names an event among all.
func keyOf(e *corev1.Event) string { return e.Namespace + "/" + e.Name }

// byChange orders events by their changes.
func byChange(a, b *corev1.Event) int { return cmp.Compare(revisionOf(a), revisionOf(b)) }
