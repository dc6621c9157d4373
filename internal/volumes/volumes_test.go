package volumes

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// These tests mount for real, so they run as root.

const uid = types.UID("11111111-2222")

// newManager returns a manager whose mounts are gone when the test ends.
func newManager(t *testing.T) *Manager {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() {
		points, err := mountsBelow(root)
		require.NoError(t, err)
		for _, point := range slices.Backward(points) {
			require.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
		}
	})
	return New(Options{Root: root})
}

func testPod(volumes []corev1.Volume, mounts ...corev1.VolumeMount) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: uid},
		Spec: corev1.PodSpec{
			Volumes:    volumes,
			Containers: []corev1.Container{{Name: "c", VolumeMounts: mounts, TerminationMessagePath: "/dev/termination-log"}},
		},
	}
}

func emptyDirVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func memoryVolume(name, size string) corev1.Volume {
	v := emptyDirVolume(name)
	v.EmptyDir.Medium = corev1.StorageMediumMemory
	if size != "" {
		v.EmptyDir.SizeLimit = new(resource.MustParse(size))
	}
	return v
}

func hostPathVolume(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode()
}

// VOL-4, VOL-6, VOL-10, SP-10.
func TestEmptyDir(t *testing.T) {
	m := newManager(t)
	p := testPod([]corev1.Volume{emptyDirVolume("data"), {Name: "plain"}})
	old := syscall.Umask(0o027)
	err := m.SetUp(t.Context(), p)
	syscall.Umask(old)
	require.NoError(t, err)
	dir := filepath.Join(m.PodDir(uid), "volumes/kubernetes.io~empty-dir/data")
	require.Equal(t, fs.ModeDir|0o777, modeOf(t, dir))
	require.Equal(t, fs.ModeDir|0o777, modeOf(t, filepath.Join(filepath.Dir(dir), "plain")), "a volume without a source is an emptyDir")
	require.Equal(t, fs.ModeDir|0o750, modeOf(t, filepath.Dir(dir)))
	require.Equal(t, fs.ModeDir|0o750, modeOf(t, m.PodDir(uid)))

	// A container may tighten its volume; setting up again leaves that alone.
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	require.NoError(t, m.SetUp(t.Context(), p))
	require.Equal(t, fs.ModeDir|0o700, modeOf(t, dir))
	require.FileExists(t, filepath.Join(dir, "x"))

	left, err := m.Leftovers()
	require.NoError(t, err)
	require.Equal(t, []types.UID{uid}, left)
	require.NoError(t, m.TearDown(t.Context(), uid))
	require.NoError(t, m.TearDown(t.Context(), uid), "idempotent")
	left, err = m.Leftovers()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestLeftoversBeforeTheFirstPod(t *testing.T) {
	left, err := New(Options{Root: filepath.Join(t.TempDir(), "none")}).Leftovers()
	require.NoError(t, err)
	require.Empty(t, left)
}

// VOL-7: the smallest limit counts.
func TestMemory(t *testing.T) {
	m := newManager(t)
	m.memoryBytes = 64 << 20
	p := testPod([]corev1.Volume{memoryVolume("small", "1Mi"), memoryVolume("large", "1Gi"), memoryVolume("none", "")})
	size := func(name string) uint64 {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(m.emptyDir(uid, name), &st))
		require.Equal(t, int64(unix.TMPFS_MAGIC), st.Type)
		return st.Blocks * uint64(st.Bsize)
	}
	require.NoError(t, m.SetUp(t.Context(), p))
	require.Equal(t, uint64(1<<20), size("small"))
	require.Equal(t, uint64(64<<20), size("large"))
	require.Equal(t, uint64(64<<20), size("none"))
	require.Equal(t, fs.ModeDir|0o777, modeOf(t, m.emptyDir(uid, "small"))&(fs.ModeDir|0o777))

	require.NoError(t, os.WriteFile(filepath.Join(m.emptyDir(uid, "small"), "x"), nil, 0o600))
	require.NoError(t, m.SetUp(t.Context(), p))
	require.FileExists(t, filepath.Join(m.emptyDir(uid, "small"), "x"), "mounted once")
	require.NoError(t, m.TearDown(t.Context(), uid))
	require.NoDirExists(t, m.PodDir(uid))

	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi")}
	require.Equal(t, int64(8<<20), m.tmpfsBytes(p, &p.Spec.Volumes[2]))
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "unlimited"})
	require.Equal(t, int64(64<<20), m.tmpfsBytes(p, &p.Spec.Volumes[2]))
}

// VOL-11, VOL-12.
func TestHostPath(t *testing.T) {
	host := t.TempDir()
	at := func(name string) string { return filepath.Join(host, name) }
	require.NoError(t, os.Mkdir(at("dir"), 0o700))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	require.NoError(t, os.Symlink("dir", at("link")))
	listener, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	require.NoError(t, unix.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, unix.Mknod(at("char"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	require.NoError(t, unix.Mknod(at("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
	tests := []struct {
		path string
		kind corev1.HostPathType
		want string // part of the error, "" for none
	}{
		{at("gone"), corev1.HostPathUnset, ""},
		{at("dir"), corev1.HostPathDirectory, ""},
		{at("link"), corev1.HostPathDirectory, ""},
		{at("gone"), corev1.HostPathDirectory, "must be a directory, but does not exist"},
		{at("file"), corev1.HostPathDirectory, "must be a directory, but is a file"},
		{at("file"), corev1.HostPathDirectoryOrCreate, "must be a directory, but is a file"},
		{at("made/deep"), corev1.HostPathDirectoryOrCreate, ""},
		{at("made/file"), corev1.HostPathFileOrCreate, ""},
		{at("no/parent"), corev1.HostPathFileOrCreate, "cannot make the host file"},
		{at("file"), corev1.HostPathFile, ""},
		{at("dir"), corev1.HostPathFile, "must be a file, but is a directory"},
		{at("dir"), corev1.HostPathFileOrCreate, "must be a file, but is a directory"},
		{at("socket"), corev1.HostPathSocket, ""},
		{at("pipe"), corev1.HostPathSocket, "must be a socket, but is a pipe"},
		{at("char"), corev1.HostPathCharDev, ""},
		{at("block"), corev1.HostPathCharDev, "must be a character device, but is a block device"},
		{at("block"), corev1.HostPathBlockDev, ""},
		{at("char"), corev1.HostPathBlockDev, "must be a block device, but is a character device"},
		{at("file/below"), corev1.HostPathFile, "not a directory"},
	}
	for _, tt := range tests {
		m := newManager(t)
		err := m.SetUp(t.Context(), testPod([]corev1.Volume{hostPathVolume("h", tt.path, tt.kind)}))
		if tt.want == "" {
			require.NoErrorf(t, err, "%s %s", tt.kind, tt.path)
			continue
		}
		require.ErrorContainsf(t, err, tt.want, "%s %s", tt.kind, tt.path)
		require.ErrorContains(t, err, `cannot set up volume "h": `)
		require.ErrorContains(t, err, tt.path)
		require.Equal(t, ReasonFailedMount, pod.ReasonOf(err, ""))
	}
	require.Equal(t, fs.ModeDir|0o755, modeOf(t, at("made/deep")))
	require.Equal(t, fs.FileMode(0o644), modeOf(t, at("made/file")))

	// All that fails is named at once.
	err = newManager(t).SetUp(t.Context(), testPod([]corev1.Volume{
		hostPathVolume("one", at("gone"), corev1.HostPathFile), hostPathVolume("two", at("gone"), corev1.HostPathSocket),
	}))
	require.ErrorContains(t, err, `"one"`)
	require.ErrorContains(t, err, `"two"`)
}

// VOL-25, VOL-27, HN-4, STC-9.
func TestMounts(t *testing.T) {
	m := newManager(t)
	both := corev1.MountPropagationBidirectional
	p := testPod([]corev1.Volume{emptyDirVolume("e"), hostPathVolume("h", "/srv", "")},
		corev1.VolumeMount{Name: "h", MountPath: "/h", ReadOnly: true, MountPropagation: &both},
		corev1.VolumeMount{Name: "e", MountPath: "e/"},
	)
	require.NoError(t, m.SetUp(t.Context(), p))
	got, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: 3, HostsText: "127.0.0.1 localhost\n"})
	require.NoError(t, err)
	dir, none := m.PodDir(uid), corev1.MountPropagationNone
	require.Equal(t, []pod.Mount{
		{HostPath: "/srv", ContainerPath: "/h", ReadOnly: true, Propagation: both},
		{HostPath: m.emptyDir(uid, "e"), ContainerPath: "/e", Propagation: none},
		{HostPath: filepath.Join(dir, "etc-hosts"), ContainerPath: "/etc/hosts", Propagation: none},
		{HostPath: filepath.Join(dir, "containers/c/3"), ContainerPath: "/dev/termination-log", Propagation: none},
	}, got)
	require.Equal(t, fs.FileMode(0o644), modeOf(t, got[2].HostPath))
	require.Equal(t, fs.FileMode(0o666), modeOf(t, got[3].HostPath))

	_, err = m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: 4, HostsText: "new\n"})
	require.NoError(t, err)
	text, err := os.ReadFile(got[2].HostPath)
	require.NoError(t, err)
	require.Equal(t, "new\n", string(text))

	got, err = m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: 5})
	require.NoError(t, err)
	require.Len(t, got, 3, "HN-6: no text, no file")

	p.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc//hosts"
	p.Spec.Containers[0].VolumeMounts[1].MountPath = "/dev/termination-log"
	got, err = m.Mounts(t.Context(), Request{Pod: p, Container: "c", HostsText: "x"})
	require.NoError(t, err)
	require.Len(t, got, 2, "HN-6: the container has its own")

	p.Spec.Containers[0].VolumeMounts[0].Name = "gone"
	_, err = m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
	require.ErrorContains(t, err, `cannot mount volume "gone" in container "c": pod n/p has none of this name`)
	_, err = m.Mounts(t.Context(), Request{Pod: p, Container: "d"})
	require.ErrorContains(t, err, `container "d"`)
}

// C-20, ST-14.
func TestTerminationMessage(t *testing.T) {
	m := newManager(t)
	p := testPod(nil)
	require.NoError(t, m.SetUp(t.Context(), p))
	write := func(attempt uint32, text string) {
		mounts, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: attempt})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(mounts[0].HostPath, []byte(text), 0o600))
	}
	require.Empty(t, m.TerminationMessage(uid, "c", 0))
	write(0, "bye")
	require.Equal(t, "bye", m.TerminationMessage(uid, "c", 0))
	write(0, "again")
	_, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: 0})
	require.NoError(t, err)
	require.Equal(t, "again", m.TerminationMessage(uid, "c", 0), "preparing the same instance twice loses nothing")
	write(1, strings.Repeat("a", 100)+strings.Repeat("b", 4096))
	require.Equal(t, strings.Repeat("b", 4096), m.TerminationMessage(uid, "c", 1))
	write(2, strings.Repeat("ü", 3000)+"x")
	require.Equal(t, strings.Repeat("ü", 2047)+"x", m.TerminationMessage(uid, "c", 2))
	require.NoError(t, os.Mkdir(m.TerminationMessagePath(uid, "c", 9), 0o700))
	require.Contains(t, m.TerminationMessage(uid, "c", 9), "cannot read the termination message")
	require.Contains(t, m.TerminationMessage("../x", "c", 0), "cannot use")
	write(5, "")
	require.NoFileExists(t, m.TerminationMessagePath(uid, "c", 0), "old ones go")
	require.FileExists(t, m.TerminationMessagePath(uid, "c", 1))
}

func TestBadUID(t *testing.T) {
	m := newManager(t)
	for _, bad := range []types.UID{"", ".", "..", "a/b", "/", "../../etc"} {
		p := testPod(nil)
		p.UID = bad
		require.Errorf(t, m.SetUp(t.Context(), p), "%q", bad)
		require.Errorf(t, m.TearDown(t.Context(), bad), "%q", bad)
		_, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
		require.Errorf(t, err, "%q", bad)
	}
}

func TestCancelled(t *testing.T) {
	m := newManager(t)
	p := testPod([]corev1.Volume{emptyDirVolume("e")}, corev1.VolumeMount{Name: "e", MountPath: "/e"})
	require.NoError(t, m.SetUp(t.Context(), p))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, pod.ClassCancelled, pod.ClassOf(m.SetUp(ctx, p)))
	_, err := m.Mounts(ctx, Request{Pod: p, Container: "c"})
	require.Equal(t, pod.ClassCancelled, pod.ClassOf(err))
	require.ErrorIs(t, m.TearDown(ctx, uid), context.Canceled)
	require.NoError(t, m.TearDown(t.Context(), uid))
}
