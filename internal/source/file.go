package source

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// File is a source that reads manifests from a directory or from one file.
type File struct {
	// Path is an absolute path.
	Path string
	// ScanEvery is how often to look when no event told to; 20 s when zero.
	ScanEvery time.Duration
	// LastGood are the pods that the source delivered before the agent was
	// started again, by origin. They stand in for broken files.
	LastGood map[string][]*corev1.Pod

	problems atomic.Pointer[[]Problem]
	rescans  nudge[time.Duration]
	// newWatcher replaces the watcher in tests.
	newWatcher func() (watcher, error)
}

// FileName is what pods of a file source carry in pod.SourceAnnotation.
const FileName = "file"

// How long to wait for what. Everything that a rename put into place is read at
// once; only what is being written, or went away, gets time.
const (
	scanEvery      = 20 * time.Second
	scanEveryBlind = time.Second // without events
	// coalesce gathers the events of one change.
	coalesce = 2 * time.Millisecond
	// pause lies between two scans, however many events there are.
	pause = 10 * time.Millisecond
	// quiet is how long a file must not have changed when it cannot be told
	// whether someone is writing it.
	quiet = 50 * time.Millisecond
	// patience is how long to wait for someone who has the file open and does
	// not write.
	patience = 2 * time.Second
	// vanish is how long a file must be gone before its pods are: editors move
	// the old version away before they write the new one.
	vanish = 150 * time.Millisecond
	// tick is longer than the steps in which file systems count time. A file
	// that was changed less than that before it was read is read once more,
	// since a second change within the step leaves no trace in its times.
	tick = 25 * time.Millisecond
)

// Problems returns what is wrong at the moment, also before the first set.
func (f *File) Problems() []Problem {
	if p := f.problems.Load(); p != nil {
		return slices.Clone(*p)
	}
	return nil
}

// Rescan makes Run look now, and from then on as often as given.
func (f *File) Rescan(every time.Duration) { f.rescans.put(every) }

// Run delivers the set whenever it has changed, until the context ends. Sends
// never delay the reading: a set that nobody took yet is replaced by a newer
// one. A directory that does not exist is an empty set; one that cannot be read
// leaves the last set in force.
func (f *File) Run(ctx context.Context, out chan<- Set) error {
	if !filepath.IsAbs(f.Path) {
		return fmt.Errorf("cannot watch %q: the path is not absolute", f.Path)
	}
	s := newScanner(filepath.Clean(f.Path), f.LastGood)
	s.every = f.ScanEvery
	w := newWatching(f.newWatcher)
	defer w.close()
	var delivery delivery
	timer := time.NewTimer(0)
	defer timer.Stop()
	next, scanned := time.Now(), time.Time{}
	// Events only bring the next look forward: a stream of them must not put it
	// off for ever.
	soon := func() {
		at := time.Now().Add(max(coalesce, pause-time.Since(scanned)))
		if at.Before(next) {
			next = at
			timer.Reset(time.Until(at))
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case delivery.channel(out) <- delivery.set:
			delivery.sent()
			continue
		case event, ok := <-w.events():
			if w.relevant(event, ok) {
				soon()
			}
			continue
		case err, ok := <-w.errors():
			w.failed(err, ok)
			soon()
			continue
		case <-f.rescans.wake():
			s.every = f.rescans.take(s.every)
			soon()
			continue
		case <-timer.C:
		}
		wait := f.scan(s, w, &delivery)
		scanned = time.Now()
		next = scanned.Add(wait)
		timer.Reset(wait)
	}
}

// scan looks once, and says when to look again.
func (f *File) scan(s *scanner, w *watching, d *delivery) time.Duration {
	// Watches come before the listing, so that no change falls between.
	w.follow(s.path, s.links)
	links := s.links
	settled, err := s.scan(time.Now())
	if !slices.Equal(links, s.links) {
		w.follow(s.path, s.links)
		s.young = true // a target may have changed before it was watched
	}
	var extra []Problem
	if p, ok := w.problem(s.path); ok {
		extra = append(extra, p)
	}
	if err != nil {
		p := Problem{Origin: s.path, Reason: "Unreadable", Message: err.Error()}
		if d.any {
			p.KeptLastGood = true
			p.Message += "; the last good set stays in force"
		}
		extra = append(extra, p)
	} else if s.absent {
		extra = append(extra, Problem{Origin: s.path, Reason: "Missing", Message: fmt.Sprintf("cannot find %s: no pods are taken from it", s.path)})
	}
	set := s.held.set(extra...)
	f.problems.Store(&set.Problems)
	switch {
	case err != nil && !d.any:
		// Silence keeps the source not ready; an empty set would kill pods.
	case !settled && !d.any:
		// The first set must be whole.
	default:
		d.offer(set)
	}
	if !settled {
		return pause
	}
	if s.young {
		return tick
	}
	every := s.every
	if every <= 0 {
		every = scanEvery
	}
	if w.blind() {
		every = min(every, scanEveryBlind)
	}
	return every
}

// delivery holds the newest set until someone takes it. The goroutine of Run
// owns it.
type delivery struct {
	set     Set
	waiting bool
	any     bool // a set was offered before
}

func (d *delivery) offer(s Set) {
	if d.any && s.equal(d.set) {
		return
	}
	d.set, d.waiting, d.any = s, true, true
}

func (d *delivery) sent() { d.waiting = false }

// channel returns nil, which never receives, while there is nothing to send.
func (d *delivery) channel(out chan<- Set) chan<- Set {
	if d.waiting {
		return out
	}
	return nil
}

// scanner turns listings into held objects. The goroutine of Run owns it.
type scanner struct {
	path   string
	held   *held
	files  map[string]*followed
	links  []string
	every  time.Duration
	absent bool
	young  bool // some file is to be read once more
}

// followed is what is known of one file.
type followed struct {
	taken bool  // the version with this stamp was read and parsed
	young bool  // it may have been changed since without a trace
	stamp stamp // of the version that was read
	seen  stamp // of the version that is being waited for
	since time.Time
	gone  time.Time // when it was first missed
}

func newScanner(path string, lastGood map[string][]*corev1.Pod) *scanner {
	s := &scanner{path: path, held: newHeld(FileName, lastGood), files: map[string]*followed{}}
	for origin := range lastGood {
		s.files[origin] = &followed{}
	}
	return s
}

// scan lists the path and reads what has changed. It says whether everything
// is settled; what is not stays as it was.
func (s *scanner) scan(now time.Time) (bool, error) {
	l, err := list(s.path)
	if err != nil {
		return true, err
	}
	s.links, s.absent, s.young = l.links, l.missing, false
	settled := true
	for name, file := range l.files {
		if !s.look(name, file, now) {
			settled = false
		}
	}
	for name, known := range s.files {
		if _, there := l.files[name]; there {
			continue
		}
		if known.gone.IsZero() {
			known.gone = now
		}
		if now.Sub(known.gone) < vanish {
			settled = false
			continue
		}
		delete(s.files, name)
		s.held.forget(name)
	}
	return settled, nil
}

// look reads a file if there is a new version and nobody is writing it.
func (s *scanner) look(name string, file listed, now time.Time) bool {
	known, ok := s.files[name]
	if !ok {
		known = &followed{}
		s.files[name] = known
	}
	known.gone = time.Time{}
	if file.err != nil {
		known.taken = false
		s.held.fail(name, "Unreadable", file.err.Error())
		return true
	}
	if known.taken && known.stamp == file.stamp && !known.young {
		return true
	}
	if known.since.IsZero() || known.seen != file.stamp {
		known.seen, known.since = file.stamp, now
	}
	wait := time.Duration(0)
	if is, sure := writing(name); is {
		wait = patience
	} else if !sure {
		wait = quiet
	}
	if now.Sub(known.since) < wait {
		return false
	}
	data, err := read(name, file.stamp)
	if errors.Is(err, errTorn) {
		return false
	}
	known.young = now.Sub(file.stamp.changed).Abs() < tick
	s.young = s.young || known.young
	known.taken, known.stamp, known.since = err == nil, file.stamp, time.Time{}
	if err != nil {
		s.held.fail(name, "Unreadable", err.Error())
		return true
	}
	s.held.replace(name, parse(FileName, name, data))
	return true
}
