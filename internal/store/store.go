package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Store is an open state file. Its methods may be called from any goroutine.
type Store struct {
	path   string
	db     *bbolt.DB
	lock   *os.File
	writes chan write
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the committer has ended

	closing sync.Once
	closed  error // what Close returned; written inside closing
	// failure is why the newest write failed, nil when it succeeded.
	failure atomic.Pointer[error]
}

// specs is the value of an instance without its record.
type specs struct {
	User json.RawMessage `json:"user"`
	Pod  json.RawMessage `json:"pod"`
}

// Put stores an instance: specs and record.
func (s *Store) Put(i pod.Instance) error {
	if i.Pod == nil || i.Pod.UID == "" {
		return errors.New("cannot store an instance without UID")
	}
	value, err := encodeSpecs(i.User, i.Pod)
	if err != nil {
		return err
	}
	record, err := json.Marshal(i.Record)
	if err != nil {
		return fmt.Errorf("cannot encode the record of pod %s: %w", pod.KeyOf(i.Pod), err)
	}
	uid := []byte(i.Pod.UID)
	return s.commit(func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketInstances)).Put(uid, value); err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketRecords)).Put(uid, record)
	})
}

// encodeSpecs returns the value of an instance without its record.
func encodeSpecs(user, p *corev1.Pod) ([]byte, error) {
	value, err := json.Marshal(struct {
		User *corev1.Pod `json:"user"`
		Pod  *corev1.Pod `json:"pod"`
	}{user, p})
	if err != nil {
		return nil, fmt.Errorf("cannot encode pod %s: %w", pod.KeyOf(p), err)
	}
	return value, nil
}

// PutRecord stores the record of an instance that was Put before; else the
// error has pod.ClassNotFound.
func (s *Store) PutRecord(uid types.UID, r pod.Record) error {
	record, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode the record of pod %s: %w", uid, err)
	}
	return s.commit(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketInstances)).Get([]byte(uid)) == nil {
			return pod.Errorf(pod.ClassNotFound, "", "there is no instance %s", uid)
		}
		return tx.Bucket([]byte(bucketRecords)).Put([]byte(uid), record)
	})
}

// Delete removes an instance. One that does not exist is no error.
func (s *Store) Delete(uid types.UID) error {
	return s.commit(func(tx *bbolt.Tx) error {
		return errors.Join(
			tx.Bucket([]byte(bucketInstances)).Delete([]byte(uid)),
			tx.Bucket([]byte(bucketRecords)).Delete([]byte(uid)),
		)
	})
}

// All returns all instances, ordered by UID. Those that cannot be decoded are
// left out and named in the error, which comes beside the others.
func (s *Store) All() ([]pod.Instance, error) {
	var instances []pod.Instance
	var broken []error
	err := s.db.View(func(tx *bbolt.Tx) error {
		records := tx.Bucket([]byte(bucketRecords))
		return tx.Bucket([]byte(bucketInstances)).ForEach(func(uid, value []byte) error {
			i, err := decodeInstance(value, records.Get(uid))
			if err != nil {
				broken = append(broken, fmt.Errorf("cannot read instance %s: %w", uid, err))
				return nil
			}
			instances = append(instances, i)
			return nil
		})
	})
	return instances, errors.Join(err, errors.Join(broken...))
}

func decodeInstance(value, record []byte) (pod.Instance, error) {
	var i pod.Instance
	var raw specs
	if err := json.Unmarshal(value, &raw); err != nil {
		return i, err
	}
	if err := json.Unmarshal(raw.User, &i.User); err != nil {
		return i, err
	}
	if err := json.Unmarshal(raw.Pod, &i.Pod); err != nil {
		return i, err
	}
	if i.Pod == nil {
		return i, errors.New("it has no pod")
	}
	if record == nil {
		return i, nil
	}
	return i, json.Unmarshal(record, &i.Record)
}

// Object is an object that was stored as its source wrote it.
type Object struct {
	Kind   string  `json:"-"`
	Key    pod.Key `json:"-"`
	Origin string  `json:"origin"`
	Raw    []byte  `json:"raw"`
}

// PutObject stores an object by kind, namespace and name.
func (s *Store) PutObject(kind string, key pod.Key, origin string, raw []byte) error {
	value, err := json.Marshal(Object{Origin: origin, Raw: raw})
	if err != nil {
		return fmt.Errorf("cannot encode %s %s: %w", kind, key, err)
	}
	return s.commit(func(tx *bbolt.Tx) error {
		b, err := tx.Bucket([]byte(bucketObjects)).CreateBucketIfNotExists([]byte(kind))
		if err != nil {
			return err
		}
		return b.Put([]byte(key.String()), value)
	})
}

// DeleteObject removes an object. One that does not exist is no error.
func (s *Store) DeleteObject(kind string, key pod.Key) error {
	return s.commit(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketObjects)).Bucket([]byte(kind))
		if b == nil {
			return nil
		}
		return b.Delete([]byte(key.String()))
	})
}

// Objects returns all objects of a kind, ordered by namespace and name.
func (s *Store) Objects(kind string) ([]Object, error) {
	var objects []Object
	err := s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketObjects)).Bucket([]byte(kind))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			o := Object{Kind: kind, Key: parseKey(string(k))}
			if err := json.Unmarshal(v, &o); err != nil {
				return fmt.Errorf("cannot read %s %s: %w", kind, k, err)
			}
			objects = append(objects, o)
			return nil
		})
	})
	return objects, err
}

// metaPrefix keeps the caller's keys apart from the store's own.
const metaPrefix = "user."

// PutMeta stores a small value under a name; nil removes it.
func (s *Store) PutMeta(key string, value []byte) error {
	return s.commit(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketMeta))
		if value == nil {
			return b.Delete([]byte(metaPrefix + key))
		}
		return b.Put([]byte(metaPrefix+key), value)
	})
}

// Meta returns the value of a name, nil when there is none.
func (s *Store) Meta(key string) ([]byte, error) {
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		// The bytes belong to the transaction.
		if v := tx.Bucket([]byte(bucketMeta)).Get([]byte(metaPrefix + key)); v != nil {
			value = append([]byte{}, v...)
		}
		return nil
	})
	return value, err
}
