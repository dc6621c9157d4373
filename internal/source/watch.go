package source

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// watcher is what is needed of fsnotify.Watcher.
type watcher interface {
	Add(path string) error
	Remove(path string) error
	Close() error
}

// watching keeps watches on the directories that a source depends on: its own,
// the parents, and those that symbolic links lead to. Events are hints to look;
// when they cannot be had, the source looks more often. The goroutine of Run
// owns it.
type watching struct {
	open  func() (watcher, error)
	w     watcher
	event <-chan fsnotify.Event
	err   <-chan error
	dirs  map[string]watched
	fault error
}

// watched is one directory under watch.
type watched struct {
	inode stamp
	names map[string]bool // entries that matter; nil means all
}

func newWatching(open func() (watcher, error)) *watching {
	if open == nil {
		open = func() (watcher, error) { return fsnotify.NewWatcher() }
	}
	return &watching{open: open, dirs: map[string]watched{}}
}

func (w *watching) events() <-chan fsnotify.Event { return w.event }
func (w *watching) errors() <-chan error          { return w.err }
func (w *watching) blind() bool                   { return w.fault != nil }

func (w *watching) close() {
	if w.w != nil {
		// Closing an inotify descriptor has no failure that matters.
		_ = w.w.Close()
	}
	w.w, w.event, w.err = nil, nil, nil
	w.dirs = map[string]watched{}
}

// problem says why there are no events.
func (w *watching) problem(origin string) (Problem, bool) {
	if w.fault == nil {
		return Problem{}, false
	}
	detail := ""
	if errors.Is(w.fault, syscall.EMFILE) || errors.Is(w.fault, syscall.ENOSPC) {
		detail = " (a limit of inotify is reached: raise fs.inotify.max_user_instances or max_user_watches)"
	}
	return Problem{
		Origin: origin, Reason: "NoEvents",
		Message: fmt.Sprintf("cannot watch %s: %v%s; it is read every %s instead", origin, w.fault, detail, scanEveryBlind),
	}, true
}

// failed handles an error of the watcher: an overflow only means to look, which
// the caller does; a closed watcher is opened again.
func (w *watching) failed(_ error, ok bool) {
	if !ok {
		w.close()
	}
}

// relevant says whether an event can have changed the set.
func (w *watching) relevant(e fsnotify.Event, ok bool) bool {
	if !ok {
		w.close()
		return true
	}
	if d, itself := w.dirs[e.Name]; itself && d.names == nil {
		return true
	}
	d, ok := w.dirs[filepath.Dir(e.Name)]
	return !ok || d.names == nil || d.names[filepath.Base(e.Name)]
}

// follow brings the watches in line with a path and the links in it.
func (w *watching) follow(path string, links []string) {
	w.fault = nil
	if w.w == nil {
		opened, err := w.open()
		if err != nil {
			w.fault = err
			return
		}
		w.w = opened
		if f, ok := opened.(*fsnotify.Watcher); ok {
			w.event, w.err = f.Events, f.Errors
		}
	}
	// What appears while watches are being set may need watches of its own.
	want := wanted(path, links)
	for range 5 {
		for dir := range w.dirs {
			if _, still := want[dir]; !still {
				w.drop(dir)
			}
		}
		for dir, names := range want {
			w.add(dir, names)
		}
		before := want
		if want = wanted(path, links); maps.EqualFunc(before, want, maps.Equal) {
			return
		}
	}
}

func (w *watching) add(dir string, names map[string]bool) {
	info, err := os.Stat(dir)
	if err != nil {
		w.drop(dir)
		return // its parent is watched and tells when it appears
	}
	// Size and times of a directory change with its entries.
	s := stampOf(info)
	inode := stamp{dev: s.dev, inode: s.inode}
	old, ok := w.dirs[dir]
	if ok && old.inode == inode {
		w.dirs[dir] = watched{inode: inode, names: names}
		return
	}
	w.drop(dir)
	if err := w.w.Add(dir); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.fault = err
		}
		return
	}
	w.dirs[dir] = watched{inode: inode, names: names}
}

func (w *watching) drop(dir string) {
	if _, ok := w.dirs[dir]; ok {
		// The kernel drops the watch of a removed directory by itself.
		_ = w.w.Remove(dir)
		delete(w.dirs, dir)
	}
}

// wanted returns the directories to watch and the entries in them that matter.
func wanted(path string, links []string) map[string]map[string]bool {
	want := map[string]map[string]bool{}
	entry := func(p string) {
		dir := filepath.Dir(p)
		names, ok := want[dir]
		if ok && names == nil {
			return
		}
		if names == nil {
			names = map[string]bool{}
			want[dir] = names
		}
		names[filepath.Base(p)] = true
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		// In the directory itself dot names matter as well: ..data is swapped.
		want[path] = nil
	}
	entry(path)
	// Of a path that is missing, the first directory that is there tells when
	// the next one appears.
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		entry(dir)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		entry(target)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(link), target)
			}
			entry(target)
		}
		if target, err := filepath.EvalSymlinks(link); err == nil {
			entry(target)
		}
	}
	return want
}
