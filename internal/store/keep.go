package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Check returns why the newest write failed, or nil: the state of the disk as
// far as this store met it.
func (s *Store) Check() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// PutPod replaces the specs of an instance that was Put before and leaves its
// record alone, which its worker may be writing at the same time.
func (s *Store) PutPod(user, p *corev1.Pod) error {
	value, err := encodeSpecs(user, p)
	if err != nil {
		return err
	}
	return s.commit(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketInstances))
		if b.Get([]byte(p.UID)) == nil {
			return pod.Errorf(pod.ClassNotFound, "", "there is no instance %s", p.UID)
		}
		return b.Put([]byte(p.UID), value)
	})
}

// KeepObjects makes the objects of one kind that a source delivered what is
// stored of that source, by key text: new ones are stored, others forgotten.
// Nothing is written when nothing changed.
func (s *Store) KeepObjects(kind, source string, objects map[string][]byte) error {
	stored, err := s.Objects(kind)
	if err != nil {
		return err
	}
	left := maps.Clone(objects)
	var gone []string
	for _, o := range stored {
		raw, wanted := objects[o.Key.String()]
		switch {
		case wanted && o.Origin == source && bytes.Equal(raw, o.Raw):
			delete(left, o.Key.String())
		case !wanted && o.Origin == source:
			gone = append(gone, o.Key.String())
		}
	}
	if len(left) == 0 && len(gone) == 0 {
		return nil
	}
	return s.changeObjects(kind, source, left, gone)
}

// kindEvent is the kind under which events are kept.
const kindEvent = "Event"

// LoadEvents returns the events that were saved, by key text.
func (s *Store) LoadEvents() (map[string][]byte, error) {
	objects, err := s.Objects(kindEvent)
	raw := make(map[string][]byte, len(objects))
	for _, o := range objects {
		raw[o.Key.String()] = o.Raw
	}
	return raw, err
}

// SaveEvents stores events by key text and forgets others, in one transaction.
func (s *Store) SaveEvents(put map[string][]byte, drop []string) error {
	return s.changeObjects(kindEvent, "", put, drop)
}

// changeObjects stores and forgets objects of one kind in one transaction.
func (s *Store) changeObjects(kind, origin string, put map[string][]byte, drop []string) error {
	return s.commit(func(tx *bbolt.Tx) error {
		b, err := tx.Bucket([]byte(bucketObjects)).CreateBucketIfNotExists([]byte(kind))
		if err != nil {
			return err
		}
		for _, key := range drop {
			if err := b.Delete([]byte(key)); err != nil {
				return err
			}
		}
		for key, raw := range put {
			value, err := json.Marshal(Object{Origin: origin, Raw: raw})
			if err != nil {
				return fmt.Errorf("cannot encode %s %s: %w", kind, key, err)
			}
			if err := b.Put([]byte(key), value); err != nil {
				return err
			}
		}
		return nil
	})
}
