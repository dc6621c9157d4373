package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is how long a test waits for what must happen.
const patient = 20 * time.Second

func manifest(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: main, image: %q}\n", name, image)
}

// write puts a file into place by a rename.
func write(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), ".tmp")
	require.NoError(t, os.WriteFile(tmp, []byte(text), 0o600))
	require.NoError(t, os.Rename(tmp, path))
}

type runner interface {
	Run(context.Context, chan<- Set) error
}

// start runs a source until the test ends.
func start(t *testing.T, r runner) chan Set {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan Set), make(chan error, 1)
	go func() { done <- r.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return out
}

// summary writes a set as "namespace/name=image" and its problems.
func summary(s Set) string {
	var b strings.Builder
	for _, p := range s.Pods {
		fmt.Fprintf(&b, "%s=%s ", p.Name, p.Spec.Containers[0].Image)
	}
	for _, p := range s.Problems {
		kept := ""
		if p.KeptLastGood {
			kept = "(kept)"
		}
		fmt.Fprintf(&b, "!%s%s ", p.Reason, kept)
	}
	return strings.TrimSpace(b.String())
}

// until takes sets until one has the wanted summary.
func until(t *testing.T, out <-chan Set, want string) Set {
	t.Helper()
	deadline := time.After(patient)
	last := "no set"
	for {
		select {
		case s := <-out:
			if last = summary(s); last == want {
				return s
			}
		case <-deadline:
			t.Fatalf("want %q, last was %q", want, last)
		}
	}
}

// never takes sets for a while and fails on a bad one.
func never(t *testing.T, out <-chan Set, d time.Duration, bad func(Set) bool) {
	t.Helper()
	end := time.After(d)
	for {
		select {
		case s := <-out:
			if bad(s) {
				t.Fatalf("set that must not be: %q", summary(s))
			}
		case <-end:
			return
		}
	}
}

func any1(Set) bool { return true }

// CFG-10, CFG-11: which files count, and that one may hold several documents.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yml"), manifest("b", "i")+"---\n"+manifest("c", "i")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n")
	write(t, filepath.Join(dir, "a.json"), `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x","uid":"1"},"spec":{"containers":[{"name":"m","image":"i"}]}},{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}]}`)
	write(t, filepath.Join(dir, ".hidden.yaml"), manifest("hidden", "i"))
	write(t, filepath.Join(dir, "note.txt"), manifest("text", "i"))
	write(t, filepath.Join(dir, "s.yaml"), "apiVersion: apps.kruise.io/v1alpha1\nkind: SidecarSet\nmetadata: {name: set}\n")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub.yaml"), 0o700))
	write(t, filepath.Join(dir, "sub.yaml", "d.yaml"), manifest("deep", "i"))
	out := start(t, &File{Path: dir})
	s := <-out
	require.Equal(t, "b=i c=i a=i", summary(s))
	require.Equal(t, "file", s.Source)
	require.Len(t, s.ConfigMaps, 1)
	require.Len(t, s.Secrets, 1)
	require.Equal(t, "set", s.SidecarSets[0].GetName())
	require.Equal(t, "", s.SidecarSets[0].GetNamespace())
	a := s.Pods[2]
	require.Equal(t, "x", a.Namespace)
	require.Empty(t, a.UID, "only the agent gives UIDs")
	require.Equal(t, "default", s.Pods[0].Namespace)
	require.Empty(t, s.Pods[0].Spec.RestartPolicy, "the user's pod is not defaulted")
	require.Equal(t, "file", pod.Source(a))
	require.Equal(t, filepath.Join(dir, "a.json"), pod.Origin(a))
}

// INV-25: a bad edit keeps the last good version until the file is
// gone.
func TestLastGoodStays(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, manifest("a", "one")+"---\n"+manifest("b", "one"))
	out := start(t, &File{Path: dir})
	until(t, out, "a=one b=one")

	write(t, file, manifest("a", "two")+"---\n"+strings.Replace(manifest("b", "two"), "spec:", "spec:\n  hostUsers: false", 1))
	s := until(t, out, "a=two b=one !Unsupported(kept)")
	require.Equal(t, file+`: cannot accept Pod default/b at line 12: spec.hostUsers: Forbidden: not supported yet: user namespaces; the last good version stays in force`, s.Problems[0].Message)
	require.Empty(t, s.Unknown, "every name is known")

	write(t, file, manifest("a", "three")+"---\n{broken")
	s = until(t, out, "a=three b=one !Syntax(kept)")
	require.Equal(t, []string{file}, s.Unknown)

	write(t, file, "")
	until(t, out, "a=three b=one !Empty(kept)")

	write(t, file, manifest("a", "four"))
	until(t, out, "a=four")
	require.NoError(t, os.Remove(file))
	until(t, out, "")
}

func TestOtherKinds(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), manifest("a", "i")+"---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
	s := <-start(t, &File{Path: dir})
	require.Equal(t, "a=i !Kind", summary(s))
	require.Contains(t, s.Problems[0].Message, filepath.Join(dir, "a.yaml")+`: cannot decode Service "web" at line 9: kind: Service (v1) is not a kind`)
	require.Empty(t, s.Unknown)
}

// CFG-5: the file that holds a name keeps it, whatever the order of names.
func TestDuplicates(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "m.yaml"), manifest("p", "m"))
	out := start(t, &File{Path: dir})
	until(t, out, "p=m")
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "a"))
	s := until(t, out, "p=m !Duplicate")
	require.Equal(t, fmt.Sprintf("cannot use Pod default/p of %s/a.yaml: %s/m.yaml already holds one of this name", dir, dir), s.Problems[0].Message)
	require.NoError(t, os.Remove(filepath.Join(dir, "m.yaml")))
	until(t, out, "p=a")
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "a")+"---\n"+manifest("p", "b"))
	s = until(t, out, "p=a !Duplicate")
	require.Contains(t, s.Problems[0].Message, "the first is at line 1")
}

// A renamed file never lets its pod go.
func TestRenamedFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "i"))
	out := start(t, &File{Path: dir})
	until(t, out, "p=i")
	require.NoError(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")))
	for {
		s := <-out
		require.Len(t, s.Pods, 1)
		if pod.Origin(s.Pods[0]) == filepath.Join(dir, "b.yaml") {
			break
		}
	}
}

// An editor that moves the old version away first does not stop the pod.
func TestMoveAwayThenWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write(t, file, manifest("p", "one"))
	out := start(t, &File{Path: dir})
	until(t, out, "p=one")
	require.NoError(t, os.Rename(file, file+"~"))
	f, err := os.Create(file)
	require.NoError(t, err)
	_, err = f.WriteString(manifest("p", "two"))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for s := range out {
		require.Len(t, s.Pods, 1)
		if s.Pods[0].Spec.Containers[0].Image == "two" {
			return
		}
	}
}

// A file that someone is still writing is not read, although what is there by
// now would be a valid pod (INV-25).
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	out := start(t, &File{Path: dir})
	until(t, out, "")
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	_, err = f.WriteString(manifest("p", "i"))
	require.NoError(t, err)
	never(t, out, 300*time.Millisecond, any1)
	_, err = f.WriteString("  - {name: second, image: i}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s := until(t, out, "p=i")
	require.Len(t, s.Pods[0].Spec.Containers, 2)
}

// A writer that keeps the file open for ever is waited for, but not for ever.
func TestOpenForEver(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	_, err = f.WriteString(manifest("p", "i"))
	require.NoError(t, err)
	require.Equal(t, "p=i", summary(<-start(t, &File{Path: dir})), "the first set is whole")
}

// The way in which mounted ConfigMaps are swapped.
func TestDataSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, image string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "a.yaml"), []byte(manifest("p", image)), 0o600))
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", "one")
	require.NoError(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	out := start(t, &File{Path: dir, ScanEvery: time.Hour})
	until(t, out, "p=one")
	version("..2", "two")
	until(t, out, "p=two")
}

// A link leads out of the directory, and its target is changed there.
func TestLinkTarget(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	write(t, filepath.Join(away, "real.yaml"), manifest("p", "one"))
	require.NoError(t, os.Symlink(filepath.Join(away, "real.yaml"), filepath.Join(dir, "a.yaml")))
	out := start(t, &File{Path: dir, ScanEvery: time.Hour})
	until(t, out, "p=one")
	write(t, filepath.Join(away, "real.yaml"), manifest("p", "two"))
	until(t, out, "p=two")
	require.NoError(t, os.Remove(filepath.Join(away, "real.yaml")))
	until(t, out, "p=two !Unreadable(kept)")
}

// CFG-13: a path that does not exist is an empty set; it may appear later.
func TestMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	out := start(t, &File{Path: dir, ScanEvery: time.Hour})
	until(t, out, "!Missing")
	next := filepath.Join(filepath.Dir(dir), "next")
	require.NoError(t, os.Mkdir(next, 0o700))
	write(t, filepath.Join(next, "a.yaml"), manifest("p", "one"))
	require.NoError(t, os.Rename(next, dir))
	until(t, out, "p=one")
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "two"))
	until(t, out, "p=two")
	require.NoError(t, os.RemoveAll(dir))
	until(t, out, "!Missing")
}

// None of the directories is there yet.
func TestMissingAncestors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	out := start(t, &File{Path: dir, ScanEvery: time.Hour})
	until(t, out, "!Missing")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "one"))
	until(t, out, "p=one")
	write(t, filepath.Join(dir, "a.yaml"), manifest("p", "two"))
	until(t, out, "p=two")
}

// A link that comes later is followed as well.
func TestLaterLink(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	out := start(t, &File{Path: dir, ScanEvery: time.Hour})
	until(t, out, "")
	write(t, filepath.Join(away, "real.yaml"), manifest("p", "one"))
	require.NoError(t, os.Symlink(filepath.Join(away, "real.yaml"), filepath.Join(dir, "a.yaml")))
	until(t, out, "p=one")
	write(t, filepath.Join(away, "real.yaml"), manifest("p", "two"))
	until(t, out, "p=two")
}

func TestSingleFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods")
	write(t, file, manifest("p", "one"))
	out := start(t, &File{Path: file, ScanEvery: time.Hour})
	until(t, out, "p=one")
	write(t, file, manifest("p", "two"))
	until(t, out, "p=two")
}

// INV-6: what cannot be read is not empty. The path is a link to itself, since
// permissions mean nothing to root.
func TestUnreadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.Symlink("m", dir))
	f := &File{Path: dir, ScanEvery: 20 * time.Millisecond}
	out := start(t, f)
	never(t, out, 300*time.Millisecond, any1)
	require.Equal(t, "Unreadable", f.Problems()[0].Reason)
	good := filepath.Join(filepath.Dir(dir), "good")
	require.NoError(t, os.Mkdir(good, 0o700))
	write(t, filepath.Join(good, "a.yaml"), manifest("p", "i"))
	swap := func(target string) {
		require.NoError(t, os.Symlink(target, dir+".new"))
		require.NoError(t, os.Rename(dir+".new", dir))
	}
	swap("good")
	until(t, out, "p=i")
	swap("m")
	until(t, out, "p=i !Unreadable(kept)")
}

func TestUnfit(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "big.yaml"), manifest("p", "i"))
	require.NoError(t, os.Truncate(filepath.Join(dir, "big.yaml"), bytesMax+1))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	s := <-start(t, &File{Path: dir})
	require.Equal(t, "!Unreadable !Unreadable", summary(s))
	require.Contains(t, s.Problems[0].Message, "more than the limit")
	require.Contains(t, s.Problems[1].Message, "a pipe")
}

// The last good version outlives the agent; a file that is gone does not.
func TestLastGoodAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	good := parse(FileName, file, []byte(manifest("p", "old")))
	other := parse(FileName, filepath.Join(dir, "gone.yaml"), []byte(manifest("q", "old")))
	podOf := func(p parsed) []*corev1.Pod {
		var s Set
		s.add(p.items[0])
		return s.Pods
	}
	write(t, file, "{{{")
	out := start(t, &File{Path: dir, LastGood: map[string][]*corev1.Pod{file: podOf(good), filepath.Join(dir, "gone.yaml"): podOf(other)}})
	require.Equal(t, "p=old !Syntax(kept)", summary(<-out))
}

type noWatcher struct{ error }

func (n noWatcher) Add(string) error    { return n.error }
func (n noWatcher) Remove(string) error { return nil }
func (n noWatcher) Close() error        { return nil }

// Without inotify the source looks by itself, and says so (CFG-14).
func TestInotifyLimits(t *testing.T) {
	for name, open := range map[string]func() (watcher, error){
		"instances": func() (watcher, error) { return nil, syscall.EMFILE },
		"watches":   func() (watcher, error) { return noWatcher{syscall.ENOSPC}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := start(t, &File{Path: dir, ScanEvery: time.Hour, newWatcher: open})
			s := until(t, out, "!NoEvents")
			require.Contains(t, s.Problems[0].Message, "a limit of inotify is reached")
			write(t, filepath.Join(dir, "a.yaml"), manifest("p", "i"))
			until(t, out, "p=i !NoEvents")
		})
	}
}

// A consumer that is slow gets the newest set, not all of them.
func TestLatestWins(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	f := &File{Path: dir}
	out := start(t, f)
	for i := range 5 {
		write(t, file, manifest("p", fmt.Sprintf("i%d", i)))
		time.Sleep(30 * time.Millisecond)
	}
	require.Eventually(t, func() bool { return summary(<-out) == "p=i4" }, patient, 50*time.Millisecond)
	never(t, out, 200*time.Millisecond, any1)
	now := time.Now()
	require.NoError(t, os.Chtimes(file, now, now))
	never(t, out, 200*time.Millisecond, any1) // an equal set is not sent again
}

func TestRelativePath(t *testing.T) {
	require.ErrorContains(t, (&File{Path: "x"}).Run(t.Context(), nil), "not absolute")
}
