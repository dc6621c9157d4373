package store

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Format is the version of the layout that this package reads and writes.
const Format = 1

// lockTimeout is how long to wait for a foreign lock on the file itself. An
// agent that holds the state is found by the lock file, without waiting.
const lockTimeout = time.Second

const (
	bucketMeta      = "meta"
	bucketInstances = "instances"
	bucketRecords   = "records"
	bucketObjects   = "objects"
	keyFormat       = "format"
)

// Open opens the state file at path, or creates it, and holds it against other
// processes until Close. The directory is made with mode 0700. It fails with
// *NewerFormatError, *LockedError, *CorruptError or *FullError where these
// apply.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, openError(path, err)
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	db, err := openFile(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return run(path, db, lock), nil
}

// Salvage says what OpenOrSalvage had to give up.
type Salvage struct {
	MovedTo string // where the damaged file is now
	Cause   error
}

// OpenOrSalvage is Open, but moves a damaged file aside and starts empty. The
// salvage is nil when there was no need to.
func OpenOrSalvage(path string, now time.Time) (*Store, *Salvage, error) {
	s, err := Open(path)
	damage, ok := errors.AsType[*CorruptError](err)
	if !ok {
		return s, nil, err
	}
	aside := path + ".corrupt-" + now.UTC().Format("20060102T150405Z")
	if err := os.Rename(path, aside); err != nil {
		return nil, nil, fmt.Errorf("cannot move the damaged state aside: %w", err)
	}
	s, err = Open(path)
	return s, &Salvage{MovedTo: aside, Cause: damage}, err
}

// lockPatience is how long a lock is waited for whose holder is dead: a process
// that it was about to start may have a copy of the file for a moment.
const lockPatience = 5 * time.Second

// lockFile is the lock beside the state.
func lockFile(path string) string { return filepath.Join(filepath.Dir(path), "lock") }

// takeLock holds the lock file beside the state. It carries the process ID, so
// that a second instance can say who is in its way.
func takeLock(path string) (*os.File, error) {
	name := lockFile(path)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, openError(path, err)
	}
	deadline := time.Now().Add(lockPatience)
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", name, err), lock.Close())
		}
		pid := holder(name)
		if pid == 0 || alive(pid) || time.Now().After(deadline) {
			return nil, errors.Join(&LockedError{Path: path, PID: pid}, lock.Close())
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The process ID only informs; on a full disk the lock counts without it.
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return lock, nil
}

// holder returns the process ID in the lock file, 0 when it is not there yet.
func holder(name string) int {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	return ok && !strings.HasPrefix(rest, "Z")
}

// openFile opens and checks the file. bbolt panics, or faults on memory that is
// mapped from a file that is too short, when the pages of a damaged file lead
// it astray; all of that is damage.
func openFile(path string) (db *bbolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			// Nothing was written. bbolt keeps its lock and its mapping when it
			// panics; the mapping would keep the lock alive after closing.
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
			_ = file.Close()
			db, err = nil, &CorruptError{Path: path, Err: fmt.Errorf("%v", r)}
		}
	}()
	_, statErr := os.Stat(path)
	fresh := errors.Is(statErr, fs.ErrNotExist)
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if err != nil {
		return nil, openError(path, err)
	}
	if err = prepare(path, db); err == nil && fresh {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return &LockedError{Path: path}
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		return &CorruptError{Path: path, Err: err}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return full(path, err)
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(syscall.Errno)):
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	// What is left are complaints about the content, which bbolt does not type.
	return &CorruptError{Path: path, Err: err}
}

// prepare checks the format and the content, and lays out an empty file.
func prepare(path string, db *bbolt.DB) error {
	empty := false
	err := db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", path, err)
		}
		if info.Size() < tx.Size() {
			return &CorruptError{Path: path, Err: fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())}
		}
		meta := tx.Bucket([]byte(bucketMeta))
		if meta == nil {
			if name, _ := tx.Cursor().First(); name != nil {
				return &CorruptError{Path: path, Err: errors.New("it is a database of another program")}
			}
			empty = true
			return nil
		}
		found, err := strconv.Atoi(string(meta.Get([]byte(keyFormat))))
		switch {
		case err != nil || found < 1:
			return &CorruptError{Path: path, Err: errors.New("it has no format version")}
		case found > Format:
			return &NewerFormatError{Path: path, Format: found, Supported: Format}
		}
		return readAll(path, tx)
	})
	if err != nil || !empty {
		return err
	}
	return classify(path, db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketMeta, bucketInstances, bucketRecords, bucketObjects} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(strconv.Itoa(Format)))
	}))
}

// readAll touches every value once, so that damage shows now and not in the
// middle of work.
func readAll(path string, tx *bbolt.Tx) error {
	for _, name := range []string{bucketInstances, bucketRecords, bucketObjects} {
		if tx.Bucket([]byte(name)) == nil {
			return &CorruptError{Path: path, Err: fmt.Errorf("it has no bucket %q", name)}
		}
	}
	var walk func(*bbolt.Bucket) error
	walk = func(b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(b.Bucket(k))
			}
			crc32.ChecksumIEEE(v) // reads every byte; the sum itself says nothing
			return nil
		})
	}
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b) })
}

// syncDir makes the name of a new file durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}
