package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// Times of a Directory.
const (
	settleTime    = time.Second // a file that changed since may be half-written
	rescanPeriod  = time.Minute
	connectMin    = 500 * time.Millisecond
	connectMax    = 5 * time.Second
	retryMin      = time.Minute // after a failure that is not the archive's
	retryMax      = 30 * time.Minute
	archivesInDir = 1000
)

// noStore stands for the runtime among the archives: it is there, and it can
// import nothing. No file has that name.
const noStore = ""

// Store is what a Directory needs of a Client.
type Store interface {
	Archives(ctx context.Context) (map[string]int, error)
	Import(ctx context.Context, r io.Reader, o ImportOptions) ([]Imported, error)
	Close() error
}

// Directory imports the archives of a directory, in the order of their names,
// and pins their images. It follows changes: a new or changed archive is
// imported, and so is one whose images are gone. When an archive is removed its
// images stay. Run owns all fields but those under mu.
type Directory struct {
	path    string
	connect func(context.Context) (Store, error)
	done    func(archive string, imported []Imported)
	failed  func(archive string, err error)

	attempts map[string]attempt // what failed, by name

	mu      sync.Mutex
	arrival chan struct{} // closed when an archive was imported or a pass ended
	busy    bool          // something may be about to arrive
}

// attempt is a failure to import one version of an archive.
type attempt struct {
	archive Archive
	final   bool // the archive is at fault
	wait    time.Duration
	again   time.Time
}

// NewDirectory returns a Directory of a path, which is made if need be. connect
// is called for each pass that has something to import or to check. done and
// failed are told of each archive; they must be quick.
func NewDirectory(path string, connect func(context.Context) (Store, error), done func(string, []Imported), failed func(string, error)) *Directory {
	return &Directory{
		path: path, connect: connect, done: done, failed: failed,
		attempts: map[string]attempt{}, arrival: make(chan struct{}), busy: true,
	}
}

// Await waits for the next archive to be imported, and reports whether there was
// anything to wait for. An image that is missing may be there then.
func (d *Directory) Await(ctx context.Context) bool {
	d.mu.Lock()
	arrival, busy := d.arrival, d.busy
	d.mu.Unlock()
	if !busy {
		return false
	}
	select {
	case <-arrival:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *Directory) state(busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = busy
}

func (d *Directory) arrived() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.arrival)
	d.arrival = make(chan struct{})
}

// Run works until ctx ends. That the directory cannot be watched costs time
// only: it is also looked at once a minute.
func (d *Directory) Run(ctx context.Context) error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		d.failed(d.path, fmt.Errorf("cannot make the directory of image archives: %w", err))
	}
	events, stop := d.watch()
	defer stop()
	wait := connectMin
	for {
		next, err := d.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			klog.V(2).InfoS("Cannot import image archives yet", "dir", d.path, "err", err, "retry", wait)
			next, wait = wait, min(2*wait, connectMax)
		default:
			wait = connectMin
			d.state(next <= settleTime) // a file is about to settle
			d.arrived()
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-events:
			d.state(true)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// watch returns a channel that tells of changes, one token at most.
func (d *Directory) watch() (changes <-chan struct{}, stop func()) {
	out := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(d.path); err != nil {
			err = errors.Join(err, watcher.Close())
		}
	}
	if err != nil {
		klog.InfoS("Cannot watch the image archives; they are looked at once a minute", "dir", d.path, "err", err)
		return out, func() {}
	}
	var follow sync.WaitGroup
	follow.Go(func() {
		for {
			select {
			case _, ok := <-watcher.Events:
				if !ok {
					return
				}
			case _, ok := <-watcher.Errors: // lost events: look, too
				if !ok {
					return
				}
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	})
	return out, func() {
		if err := watcher.Close(); err != nil {
			klog.ErrorS(err, "Cannot end the watch of the image archives", "dir", d.path)
		}
		follow.Wait()
	}
}

// pass imports what is missing. It returns when to look again, or an error when
// containerd cannot be asked.
func (d *Directory) pass(ctx context.Context) (time.Duration, error) {
	archives, err := d.list()
	if err != nil {
		d.fail(Archive{Name: d.path}, fmt.Errorf("cannot list the image archives: %w", err), time.Now())
		return rescanPeriod, nil
	}
	next := rescanPeriod
	if len(archives) == 0 {
		return next, nil
	}
	store, err := d.connect(ctx)
	if err != nil && !isAway(err) {
		d.fail(Archive{Name: noStore}, err, time.Now())
		return next, nil
	}
	if err != nil {
		return 0, err
	}
	delete(d.attempts, noStore)
	defer func() { _ = store.Close() }()
	held, err := store.Archives(ctx)
	if err != nil {
		return 0, err
	}
	for _, a := range archives {
		now := time.Now()
		if a.in(held) {
			delete(d.attempts, a.Name)
			continue
		}
		if age := now.Sub(a.ModTime); age >= 0 && age < settleTime {
			next = min(next, settleTime-age)
			continue
		}
		if old, ok := d.attempts[a.Name]; ok && old.archive == a {
			if old.final || now.Before(old.again) {
				continue
			}
		}
		if err := d.load(ctx, store, a); err != nil {
			return 0, err
		}
	}
	return max(next, time.Millisecond), nil
}

// list returns the archives in their order, and forgets failures of those that
// are gone, and that the directory could not be read.
func (d *Directory) list() ([]Archive, error) {
	entries, err := os.ReadDir(d.path) // sorted
	if err != nil {
		return nil, err
	}
	var archives []Archive
	there := map[string]bool{noStore: true}
	for _, e := range entries {
		if !isArchive(e.Name()) || len(archives) >= archivesInDir {
			continue
		}
		info, err := os.Stat(filepath.Join(d.path, e.Name()))
		if err != nil || !info.Mode().IsRegular() {
			continue // it went away, or it is none of ours
		}
		there[e.Name()] = true
		archives = append(archives, Archive{Name: e.Name(), Size: info.Size(), ModTime: info.ModTime()})
	}
	for name := range d.attempts {
		if !there[name] {
			delete(d.attempts, name)
		}
	}
	return archives, nil
}

func isArchive(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false // what rsync and editors leave
	}
	for _, suffix := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// load imports one archive. The error is that containerd went away.
func (d *Directory) load(ctx context.Context, store Store, a Archive) error {
	file, err := os.Open(filepath.Join(d.path, a.Name))
	if err != nil {
		d.fail(a, fmt.Errorf("cannot read the archive: %w", err), time.Now())
		return nil
	}
	defer func() { _ = file.Close() }()
	imported, err := store.Import(ctx, file, ImportOptions{Pin: true, Archive: &a})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isAway(err):
		return err
	case err != nil:
		d.fail(a, err, time.Now())
		return nil
	}
	delete(d.attempts, a.Name)
	d.done(a.Name, imported)
	d.arrived()
	return nil
}

// fail remembers a failure and tells of it, once per version of an archive.
func (d *Directory) fail(a Archive, err error, now time.Time) {
	_, final := errors.AsType[*ArchiveError](err)
	next := attempt{archive: a, final: final, wait: retryMin}
	old, again := d.attempts[a.Name]
	if again = again && old.archive == a; again {
		next.wait = min(2*old.wait, retryMax)
	}
	next.again = now.Add(next.wait)
	d.attempts[a.Name] = next
	if !again {
		d.failed(cmp.Or(a.Name, d.path), err)
	}
}
