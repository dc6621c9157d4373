package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// How often the log is saved at most, and looked through for what is too old.
// A crash can lose the last saveEvery of events; no decision depends on them.
const (
	saveEvery  = time.Second
	retryAfter = time.Minute
	pruneEvery = 10 * time.Minute
)

// Keeper keeps events beyond the life of the process.
type Keeper interface {
	// LoadEvents returns what was kept, as JSON by key.
	LoadEvents() (map[string][]byte, error)
	// SaveEvents stores events by key and forgets others, in one step.
	SaveEvents(put map[string][]byte, drop []string) error
}

// Load takes up what a log before this one left. It is called before the first
// Add. What cannot be read is dropped and told in the error; the rest is there.
func (l *Log) Load(k Keeper) error {
	raw, err := k.LoadEvents()
	if err != nil {
		return fmt.Errorf("cannot load the events: %w", err)
	}
	var broken []error
	loaded := make([]*corev1.Event, 0, len(raw))
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, text := range raw {
		l.kept[key] = true
		var e corev1.Event
		if err := json.Unmarshal(text, &e); err != nil {
			broken = append(broken, fmt.Errorf("cannot read event %s: %w", key, err))
			l.unsaved[key] = nil
			continue
		}
		loaded = append(loaded, &e)
	}
	slices.SortFunc(loaded, byChange)
	for _, e := range loaded {
		id := identityOf(e)
		l.similar[id.kin]++
		l.same[id] = l.order.PushBack(e)
		l.revision = max(l.revision, revisionOf(e))
	}
	l.prune(time.Now())
	return errors.Join(broken...)
}

// Run saves the log from time to time until ctx ends, and then once more.
func (l *Log) Run(ctx context.Context, k Keeper) error {
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			l.save(k)
			return nil
		case <-prune.C:
			l.mu.Lock()
			l.prune(time.Now())
			l.mu.Unlock()
			l.save(k)
			continue
		case <-l.dirty:
		}
		wait := saveEvery
		if !l.save(k) {
			wait = retryAfter
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// save stores what changed since the last time. What could not be stored is
// tried again with what comes then.
func (l *Log) save(k Keeper) bool {
	unsaved, first := l.takeUnsaved()
	if len(unsaved) == 0 {
		return true
	}
	put := map[string][]byte{}
	var drop []string
	for key, e := range unsaved {
		if e == nil {
			drop = append(drop, key)
			continue
		}
		text, err := json.Marshal(e)
		if err != nil {
			klog.ErrorS(err, "Cannot encode an event", "event", key)
			continue
		}
		put[key] = text
	}
	slices.Sort(drop)
	if err := k.SaveEvents(put, drop); err != nil {
		klog.ErrorS(err, "Cannot save the events; they are kept in memory")
		l.returnUnsaved(unsaved, first)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range drop {
		delete(l.kept, key)
	}
	return true
}

// takeUnsaved returns what is to be saved, and which keys are saved for the
// first time.
func (l *Log) takeUnsaved() (unsaved map[string]*corev1.Event, first []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsaved = l.unsaved
	l.unsaved = map[string]*corev1.Event{}
	for key, e := range unsaved {
		if e != nil && !l.kept[key] {
			first = append(first, key)
			l.kept[key] = true
		}
	}
	return unsaved, first
}

// returnUnsaved takes back what could not be saved, but for what happened to it
// meanwhile.
func (l *Log) returnUnsaved(unsaved map[string]*corev1.Event, first []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range unsaved {
		if _, newer := l.unsaved[key]; !newer {
			l.unsaved[key] = e
		}
	}
	for _, key := range first {
		delete(l.kept, key)
		if e, there := l.unsaved[key]; there && e == nil {
			delete(l.unsaved, key) // came and went, and was never stored
		}
	}
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}
