package store

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

var rewrite = flag.Bool("rewrite", false, "write the fixture of the current format, for a new format only")

// childEnv makes the test binary a writer that is killed by its parent.
const childEnv = "NODELET_STORE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
	}
	goleak.VerifyTestMain(m)
}

func instance(uid string) pod.Instance {
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p-" + uid, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}},
	}
	effective := user.DeepCopy()
	effective.UID = types.UID(uid)
	effective.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return pod.Instance{User: user, Pod: effective, Record: record(1)}
}

func record(attempts uint32) pod.Record {
	return pod.Record{
		Phase:      pod.PhaseTerminating,
		Started:    pod.Stamp{Wall: time.Unix(1000, 0).UTC(), Boot: time.Minute, BootID: "b"},
		Containers: map[string]pod.ContainerRecord{"c": {Attempts: attempts}},
		Stop:       &pod.Stop{GraceSeconds: 3, Delete: true},
	}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(t *testing.T, s *Store) *Store {
	t.Helper()
	require.NoError(t, s.Close())
	again, err := Open(s.path)
	require.NoError(t, err)
	return again
}

func TestInstances(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root", "state.db")
	s, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, s.Put(instance("b")))
	require.NoError(t, s.Put(instance("a")))
	require.NoError(t, s.Put(instance("c")))
	require.NoError(t, s.PutRecord("a", record(7)))
	require.NoError(t, s.Delete("c"))
	require.NoError(t, s.Delete("c"), "deleting is idempotent")
	require.Equal(t, pod.ClassNotFound, pod.ClassOf(s.PutRecord("c", record(1))))
	require.ErrorContains(t, s.Put(pod.Instance{Pod: &corev1.Pod{}}), "without UID")

	s = reopen(t, s)
	defer func() { require.NoError(t, s.Close()) }()
	all, err := s.All()
	require.NoError(t, err)
	want := instance("a")
	want.Record = record(7)
	require.Equal(t, []pod.Instance{want, instance("b")}, all)

	for name, mode := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode())
	}
}

func TestObjects(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	key := pod.Key{Namespace: "n", Name: "b"}
	require.NoError(t, s.PutObject("ConfigMap", key, "/a.yaml", []byte("{}")))
	require.NoError(t, s.PutObject("ConfigMap", pod.Key{Namespace: "n", Name: "a"}, "/a.yaml", []byte("{1}")))
	require.NoError(t, s.PutObject("SidecarSet", pod.Key{Name: "wide"}, "/s.yaml", []byte("s")))
	got, err := s.Objects("ConfigMap")
	require.NoError(t, err)
	require.Equal(t, []Object{
		{Kind: "ConfigMap", Key: pod.Key{Namespace: "n", Name: "a"}, Origin: "/a.yaml", Raw: []byte("{1}")},
		{Kind: "ConfigMap", Key: key, Origin: "/a.yaml", Raw: []byte("{}")},
	}, got)
	require.NoError(t, s.DeleteObject("ConfigMap", key))
	require.NoError(t, s.DeleteObject("Nothing", key))
	got, err = s.Objects("ConfigMap")
	require.NoError(t, err)
	require.Len(t, got, 1)
	wide, err := s.Objects("SidecarSet")
	require.NoError(t, err)
	require.Equal(t, pod.Key{Name: "wide"}, wide[0].Key)
	none, err := s.Objects("Secret")
	require.NoError(t, err)
	require.Empty(t, none)
}

// What a source no longer delivers is forgotten, what others delivered is not.
func TestKeepObjects(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, s.KeepObjects("Secret", "file", map[string][]byte{"n/a": []byte("1"), "n/b": []byte("1")}))
	require.NoError(t, s.KeepObjects("Secret", "http", map[string][]byte{"n/c": []byte("1")}))
	require.NoError(t, s.KeepObjects("Secret", "file", map[string][]byte{"n/b": []byte("2")}))
	got, err := s.Objects("Secret")
	require.NoError(t, err)
	require.Equal(t, []Object{
		{Kind: "Secret", Key: pod.Key{Namespace: "n", Name: "b"}, Origin: "file", Raw: []byte("2")},
		{Kind: "Secret", Key: pod.Key{Namespace: "n", Name: "c"}, Origin: "http", Raw: []byte("1")},
	}, got)
}

// New specs leave the record alone.
func TestPutPod(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	i := instance("a")
	require.Equal(t, pod.ClassNotFound, pod.ClassOf(s.PutPod(i.User, i.Pod)))
	require.NoError(t, s.Check(), "an unknown pod is no fault of the disk")
	require.NoError(t, s.Put(i))
	require.NoError(t, s.PutRecord("a", record(9)))
	i.User.Labels = map[string]string{"x": "y"}
	require.NoError(t, s.PutPod(i.User, i.Pod))
	i.Record = record(9)
	all, err := s.All()
	require.NoError(t, err)
	require.Equal(t, []pod.Instance{i}, all)
}

func TestMeta(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, s.PutMeta("format", []byte("mine")), "the caller's names are his own")
	v, err := s.Meta("format")
	require.NoError(t, err)
	require.Equal(t, "mine", string(v))
	require.NoError(t, s.PutMeta("format", nil))
	v, err = s.Meta("format")
	require.NoError(t, err)
	require.Nil(t, v)
	require.NoError(t, reopen(t, s).Close())
}

func TestClosed(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Put(instance("a")), ErrClosed)
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	open(t, path)
	_, err := Open(path)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, fmt.Sprintf("cannot use %s: another instance (pid %d) holds %s", path, os.Getpid(), lockFile(path)), err.Error())
}

// Something that is no instance holds the file itself.
func TestLockedByOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = Open(path)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Zero(t, locked.PID)
}

func TestNewerFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte("7"))
	}))
	require.NoError(t, db.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)

	_, salvage, err := OpenOrSalvage(path, time.Now())
	var newer *NewerFormatError
	require.ErrorAs(t, err, &newer)
	require.Nil(t, salvage)
	require.Equal(t, "cannot use "+path+": state format 7 is newer than supported 1; pods were not touched", newer.Error())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	again, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.ModTime(), again.ModTime())
}

func TestForeignDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, db.Close())
	_, err = Open(path)
	require.ErrorContains(t, err, "another program")
}

// One value that does not decode takes no other with it.
func TestBadValue(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, s.Put(instance("a")))
	require.NoError(t, s.commit(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketInstances)).Put([]byte("bad"), []byte("{"))
	}))
	all, err := s.All()
	require.ErrorContains(t, err, "cannot read instance bad")
	require.Len(t, all, 1)
}

// A write that fails harms none of those that are committed with it, and many
// writers share a commit.
func TestGroups(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	const writers = 50
	entered, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.commit(func(*bbolt.Tx) error { close(entered); <-free; return nil })
	})
	<-entered
	errs := make([]error, writers)
	for i := range writers {
		wg.Go(func() {
			if i == 7 {
				errs[i] = s.PutRecord("nobody", record(1))
				return
			}
			errs[i] = s.Put(instance(strconv.Itoa(i)))
		})
	}
	time.Sleep(50 * time.Millisecond) // lets them gather; fewer only make the groups smaller
	close(free)
	wg.Wait()
	for i, err := range errs {
		if i == 7 {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
		}
	}
	all, err := s.All()
	require.NoError(t, err)
	require.Len(t, all, writers-1)
}

// Writers that come together pay for few commits.
func TestGroupCommit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	entered, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.commit(func(*bbolt.Tx) error { close(entered); <-free; return nil })
	})
	<-entered
	var mu sync.Mutex
	transactions := map[int]bool{}
	for range 50 {
		wg.Go(func() {
			_ = s.commit(func(tx *bbolt.Tx) error {
				mu.Lock()
				defer mu.Unlock()
				transactions[tx.ID()] = true
				return nil
			})
		})
	}
	time.Sleep(100 * time.Millisecond)
	close(free)
	wg.Wait()
	require.Less(t, len(transactions), 10)
}

// child writes as fast as it can, and says which writes were acknowledged.
func child(path string) {
	s, err := Open(path)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := uint32(1); ; i++ {
				uid := fmt.Sprintf("%d-%d", w, i)
				if s.Put(instance(uid)) != nil || s.PutRecord(types.UID(uid), record(i)) != nil {
					return
				}
				mu.Lock()
				fmt.Println("acked", uid, i)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// Every acknowledged write is there after a kill -9 in the middle.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acked := map[string]uint32{}
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(stdout)
		for n := 0; lines.Scan(); n++ {
			var uid string
			var attempts uint32
			_, err := fmt.Sscanf(lines.Text(), "acked %s %d", &uid, &attempts)
			if err != nil {
				continue // the last line may be cut
			}
			acked[uid] = attempts
			if n == 50+17*round {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
	}
	require.Greater(t, len(acked), 50)
	s := open(t, path)
	all, err := s.All()
	require.NoError(t, err)
	found := map[string]uint32{}
	for _, i := range all {
		found[string(i.UID())] = i.Record.Container("c").Attempts
	}
	for uid, attempts := range acked {
		require.Equal(t, attempts, found[uid], uid)
	}
}

// R37: a file of format 1 stays readable for ever.
func TestFormat1(t *testing.T) {
	fixture := filepath.Join("testdata", "format1.db")
	if *rewrite {
		_ = os.Remove(fixture)
		s, err := Open(fixture)
		require.NoError(t, err)
		i := instance("0b0c7f3e-format-1")
		i.Record.Containers = map[string]pod.ContainerRecord{
			"c": {Attempts: 4, Exit: &pod.Exit{ContainerID: "id", Attempt: 3, ExitCode: 137, Reason: "OOMKilled"}},
		}
		require.NoError(t, s.Put(i))
		require.NoError(t, s.PutObject("ConfigMap", pod.Key{Namespace: "default", Name: "m"}, "/etc/m.yaml", []byte(`{"data":{"a":"b"}}`)))
		require.NoError(t, s.PutMeta("node", []byte("n1")))
		require.NoError(t, s.Close())
		require.NoError(t, os.Remove(filepath.Join("testdata", "lock")))
	}
	data, err := os.ReadFile(fixture)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "state.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	s := open(t, path)
	all, err := s.All()
	require.NoError(t, err)
	require.Len(t, all, 1)
	i := all[0]
	require.Equal(t, types.UID("0b0c7f3e-format-1"), i.UID())
	require.Equal(t, "busybox", i.User.Spec.Containers[0].Image)
	require.Equal(t, corev1.RestartPolicyAlways, i.Pod.Spec.RestartPolicy)
	require.Equal(t, pod.PhaseTerminating, i.Record.Phase)
	require.Equal(t, time.Minute, i.Record.Started.Boot)
	require.Equal(t, int64(3), i.Record.Stop.GraceSeconds)
	c := i.Record.Container("c")
	require.Equal(t, uint32(4), c.Attempts)
	require.Equal(t, "OOMKilled", c.Exit.Reason)
	objects, err := s.Objects("ConfigMap")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(objects[0].Raw), `{"data"`))
	node, err := s.Meta("node")
	require.NoError(t, err)
	require.Equal(t, "n1", string(node))
}

// Errors that wrap keep their cause.
func TestErrorsUnwrap(t *testing.T) {
	cause := errors.New("x")
	require.ErrorIs(t, &CorruptError{Err: cause}, cause)
	require.ErrorIs(t, classify("p", cause), cause)
	require.NoError(t, classify("p", nil))
}
