package store

import (
	"errors"
	"os"
	"strings"

	"go.etcd.io/bbolt"

	"nodelet.dev/nodelet/internal/pod"
)

// groupMax is how many writes one transaction takes.
const groupMax = 256

// write is one write that waits for its commit.
type write struct {
	change func(*bbolt.Tx) error
	done   chan error
}

func run(path string, db *bbolt.DB, lock *os.File) *Store {
	s := &Store{
		path: path, db: db, lock: lock,
		writes: make(chan write), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go s.committer()
	return s
}

// Close waits for the writes under way and gives the file free.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		<-s.done
		s.closed = errors.Join(s.db.Close(), s.lock.Close())
	})
	return s.closed
}

// commit returns once the change is on disk.
func (s *Store) commit(change func(*bbolt.Tx) error) error {
	w := write{change: change, done: make(chan error, 1)}
	select {
	case <-s.stop:
		return ErrClosed
	case s.writes <- w:
		err := classify(s.path, <-w.done)
		switch {
		case err == nil:
			s.failure.Store(nil)
		case pod.ClassOf(err) == pod.ClassUnknown: // the file, not the value, is at fault
			s.failure.Store(&err)
		}
		return err
	}
}

// committer commits what is waiting, in one transaction each time.
func (s *Store) committer() {
	defer close(s.done)
	var group []write
	for {
		select {
		case <-s.stop:
			return
		case w := <-s.writes:
			group = s.gather(append(group[:0], w))
		}
		if err := s.db.Update(all(group)); err == nil || len(group) == 1 {
			answer(group, err)
			continue
		}
		// One of them fails, or the disk does: each alone, so that a bad write
		// harms nobody else.
		for _, w := range group {
			w.done <- s.db.Update(w.change)
		}
	}
}

// gather adds the writes that wait already; it waits for none.
func (s *Store) gather(group []write) []write {
	for len(group) < groupMax {
		select {
		case w := <-s.writes:
			group = append(group, w)
		default:
			return group
		}
	}
	return group
}

func all(group []write) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		for _, w := range group {
			if err := w.change(tx); err != nil {
				return err
			}
		}
		return nil
	}
}

func answer(group []write, err error) {
	for _, w := range group {
		w.done <- err
	}
}

// parseKey is the inverse of pod.Key.String.
func parseKey(s string) pod.Key {
	namespace, name, _ := strings.Cut(s, "/")
	return pod.Key{Namespace: namespace, Name: name}
}
