package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// shelf is a containerd in memory: an archive's text is "NAME NAME…", or starts
// with "bad" or "full".
type shelf struct {
	mu       sync.Mutex
	away     bool
	other    error             // of a runtime that can import nothing
	labels   map[string]string // of images, by name
	imported []string          // names of archives, in order
	tries    map[string]int
	gate     chan struct{} // if set, imports wait for it
}

func (s *shelf) connect(context.Context) (Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, &UnavailableError{Endpoint: "here", Err: errors.New("away")}
	}
	if s.other != nil {
		return nil, s.other
	}
	return s, nil
}

func (s *shelf) Close() error { return nil }

func (s *shelf) Archives(context.Context) (map[string]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[string]int{}
	for _, l := range s.labels {
		held[l]++
	}
	return held, nil
}

func (s *shelf) Import(ctx context.Context, r io.Reader, o ImportOptions) ([]Imported, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[o.Archive.Name]++
	switch {
	case strings.HasPrefix(string(text), "bad"):
		return nil, badArchive("cannot import: it is bad")
	case strings.HasPrefix(string(text), "full"):
		return nil, errors.New("cannot import: the disk is full")
	}
	names := strings.Fields(string(text))
	var out []Imported
	for _, n := range names {
		s.labels[n] = o.Archive.value(len(names))
		out = append(out, Imported{Name: n, Pinned: o.Pin})
	}
	s.imported = append(s.imported, o.Archive.Name)
	return out, nil
}

func (s *shelf) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.imported...)
}

// drawer is a Directory with what it said.
type drawer struct {
	*Directory
	t     *testing.T
	shelf *shelf

	mu   sync.Mutex
	said []string
}

func newDrawer(t *testing.T) *drawer {
	t.Helper()
	d := &drawer{t: t, shelf: &shelf{labels: map[string]string{}, tries: map[string]int{}}}
	d.Directory = NewDirectory(filepath.Join(t.TempDir(), "images"), d.shelf.connect,
		func(archive string, list []Imported) {
			for _, i := range list {
				d.say(fmt.Sprintf("%s: %s pinned=%v", archive, i.Name, i.Pinned))
			}
		},
		func(archive string, err error) { d.say(fmt.Sprintf("%s: %v", filepath.Base(archive), err)) })
	return d
}

func (d *drawer) say(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, text)
}

func (d *drawer) words() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.said...)
}

// put writes an archive that is settled.
func (d *drawer) put(name, text string) {
	d.t.Helper()
	require.NoError(d.t, os.MkdirAll(d.path, 0o755))
	temp := filepath.Join(d.path, ".new")
	require.NoError(d.t, os.WriteFile(temp, []byte(text), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(d.t, os.Chtimes(temp, old, old))
	require.NoError(d.t, os.Rename(temp, filepath.Join(d.path, name)))
}

func (d *drawer) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		require.NoError(d.t, <-ended)
	})
}

func (d *drawer) await(what string, holds func() bool) {
	d.t.Helper()
	require.Eventually(d.t, holds, patience, 5*time.Millisecond, what)
}

// TestDirectoryOrder: at the start archives come in the order of their names,
// and nothing else is touched.
func TestDirectoryOrder(t *testing.T) {
	d := newDrawer(t)
	d.put("20.tar", "b:1")
	d.put("10.tar.gz", "a:1 a:2")
	d.put("30.tar.zst", "c:1")
	d.put("40.tgz", "d:1")
	d.put("readme.txt", "no:1")
	d.put(".hidden.tar", "no:2")
	require.NoError(t, os.Mkdir(filepath.Join(d.path, "dir.tar"), 0o755))
	stop := d.run()
	defer stop()
	d.await("all four", func() bool { return len(d.shelf.order()) == 4 })
	require.Equal(t, []string{"10.tar.gz", "20.tar", "30.tar.zst", "40.tgz"}, d.shelf.order())
	require.Equal(t, []string{"10.tar.gz: a:1 pinned=true", "10.tar.gz: a:2 pinned=true", "20.tar: b:1 pinned=true", "30.tar.zst: c:1 pinned=true", "40.tgz: d:1 pinned=true"}, d.words())
}

// TestDirectoryRemembers: what is there already is not imported again, also not
// by the next agent; what is new, changed or lost is.
func TestDirectoryRemembers(t *testing.T) {
	d := newDrawer(t)
	d.put("a.tar", "a:1 a:2")
	stop := d.run()
	d.await("a", func() bool { return len(d.shelf.order()) == 1 })
	d.put("b.tar", "b:1")
	d.await("b, which appeared", func() bool { return len(d.shelf.order()) == 2 })
	stop()

	stop = d.run()
	d.put("c.tar", "c:1")
	d.await("c", func() bool { return len(d.shelf.order()) == 3 })
	require.Equal(t, []string{"a.tar", "b.tar", "c.tar"}, d.shelf.order())
	d.put("b.tar", "b:1 b:2")
	d.await("the new b", func() bool { return len(d.shelf.order()) == 4 })
	stop()

	d.shelf.mu.Lock()
	maps.DeleteFunc(d.shelf.labels, func(name, _ string) bool { return name == "a:2" })
	d.shelf.mu.Unlock()
	stop = d.run()
	defer stop()
	d.await("a, which lost an image", func() bool { return len(d.shelf.order()) == 5 })
	require.Equal(t, "a.tar", d.shelf.order()[4])
}

// TestDirectoryFailures: a bad archive is told once and harms no other; it is
// tried again when it changes.
func TestDirectoryFailures(t *testing.T) {
	d := newDrawer(t)
	d.put("1.tar", "bad")
	d.put("2.tar", "full")
	d.put("3.tar", "c:1")
	stop := d.run()
	defer stop()
	d.await("the good one", func() bool { return len(d.words()) == 3 })
	for range 3 {
		d.put("again.txt", "") // makes it look
	}
	d.put("4.tar", "d:1")
	d.await("the next", func() bool { return len(d.shelf.order()) == 2 })
	require.Equal(t, []string{"1.tar: cannot import: it is bad", "2.tar: cannot import: the disk is full", "3.tar: c:1 pinned=true", "4.tar: d:1 pinned=true"}, d.words())
	d.shelf.mu.Lock()
	require.Equal(t, map[string]int{"1.tar": 1, "2.tar": 1, "3.tar": 1, "4.tar": 1}, d.shelf.tries)
	d.shelf.mu.Unlock()
	d.put("1.tar", "a:1")
	d.await("the corrected one", func() bool { return len(d.shelf.order()) == 3 })
}

// TestDirectoryRetries: a failure that is not the archive's is tried again, at
// growing intervals; one of the archive is not.
func TestDirectoryRetries(t *testing.T) {
	d := newDrawer(t)
	a := Archive{Name: "a.tar", Size: 1, ModTime: time.Unix(1, 0)}
	now := time.Now()
	full := errors.New("full")
	for _, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		d.fail(a, full, now)
		require.Equal(t, wait, d.attempts["a.tar"].wait)
		require.False(t, d.attempts["a.tar"].final)
	}
	require.Len(t, d.words(), 1)
	a.Size = 2
	d.fail(a, badArchive("bad"), now)
	require.True(t, d.attempts["a.tar"].final)
	require.Equal(t, time.Minute, d.attempts["a.tar"].wait)
	require.Len(t, d.words(), 2)
}

// TestDirectoryHalfWritten: a file that somebody is writing is left alone until
// it rests.
func TestDirectoryHalfWritten(t *testing.T) {
	d := newDrawer(t)
	stop := d.run()
	defer stop()
	d.await("the directory", func() bool { _, err := os.Stat(d.path); return err == nil })
	file, err := os.Create(filepath.Join(d.path, "a.tar"))
	require.NoError(t, err)
	for range 15 {
		_, err = file.WriteString("a:1 ")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond) // writers are slow
	}
	require.Empty(t, d.words())
	require.NoError(t, file.Close())
	d.await("the whole of it", func() bool { return len(d.words()) > 0 })
	require.Equal(t, 1, d.shelf.tries["a.tar"])
}

// TestDirectoryWithoutContainerd waits for it.
func TestDirectoryWithoutContainerd(t *testing.T) {
	d := newDrawer(t)
	d.shelf.away = true
	d.put("a.tar", "a:1")
	stop := d.run()
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	require.False(t, d.Await(ctx), "something may come, and did not")
	require.Empty(t, d.words())
	d.shelf.mu.Lock()
	d.shelf.away = false
	d.shelf.mu.Unlock()
	d.await("the import", func() bool { return len(d.words()) == 1 })
}

// TestDirectoryWithOtherRuntime: that nothing can be imported is told once, and
// nobody waits for it.
func TestDirectoryWithOtherRuntime(t *testing.T) {
	d := newDrawer(t)
	d.shelf.other = errors.New("cannot manage images: the runtime is cri-o")
	d.put("a.tar", "a:1")
	stop := d.run()
	defer stop()
	d.await("the fault", func() bool { return len(d.words()) == 1 })
	require.Equal(t, []string{"images: cannot manage images: the runtime is cri-o"}, d.words())
	d.await("idle", func() bool { return !d.Await(t.Context()) })
	d.put("b.tar", "b:1")
	d.await("idle again", func() bool { return !d.Await(t.Context()) })
	require.Len(t, d.words(), 1)
}

// TestDirectoryAwait: who misses an image waits for archive after archive, and
// for nothing when there is nothing to come.
func TestDirectoryAwait(t *testing.T) {
	d := newDrawer(t)
	d.shelf.gate = make(chan struct{})
	d.put("1.tar", "a:1")
	d.put("2.tar", "b:1")
	stop := d.run()
	defer stop()
	waited := make(chan int, 1)
	go func() {
		n := 0
		for d.Await(t.Context()) {
			n++
		}
		waited <- n
	}()
	for range 2 {
		d.shelf.gate <- struct{}{}
	}
	require.Positive(t, <-waited)
	require.Len(t, d.shelf.order(), 2)
	require.False(t, d.Await(t.Context()))
}

// TestDirectoryStopsInImport: leaving does not wait for a long import, and tells
// of no failure.
func TestDirectoryStopsInImport(t *testing.T) {
	d := newDrawer(t)
	d.shelf.gate = make(chan struct{})
	d.put("1.tar", "a:1")
	stop := d.run()
	d.await("busy", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.busy })
	stop()
	require.Empty(t, d.words())
}

// TestDirectoryCannotBeRead tells it once.
func TestDirectoryCannotBeRead(t *testing.T) {
	d := newDrawer(t)
	require.NoError(t, os.WriteFile(d.path, nil, 0o600))
	stop := d.run()
	d.await("both faults", func() bool { return len(d.words()) == 2 })
	stop()
	require.Contains(t, d.words()[0], "images: cannot make the directory of image archives")
	require.Contains(t, d.words()[1], "images: cannot list the image archives")
}
