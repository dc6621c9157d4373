package volumes

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// subPod has one emptyDir, mounted by the given subPaths.
func subPod(t *testing.T, m *Manager, subPaths ...string) (*corev1.Pod, string) {
	t.Helper()
	var mounts []corev1.VolumeMount
	for i, s := range subPaths {
		mounts = append(mounts, corev1.VolumeMount{Name: "e", MountPath: "/m" + strconv.Itoa(i), SubPath: s})
	}
	p := testPod([]corev1.Volume{emptyDirVolume("e")}, mounts...)
	require.NoError(t, m.SetUp(t.Context(), p))
	return p, m.emptyDir(uid, "e")
}

// VOL-23: what is missing is made with the mode of the volume, and each start
// resolves anew.
func TestSubPath(t *testing.T) {
	m := newManager(t)
	p, dir := subPod(t, m, "a/b", "file", "link", "socket")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "one"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "two"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "two", "second"), nil, 0o600))
	require.NoError(t, os.Symlink("one", filepath.Join(dir, "link")))
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()

	mounts, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(m.PodDir(uid), "volume-subpaths/e/c/0"), mounts[0].HostPath)
	require.Equal(t, fs.ModeDir|0o777, modeOf(t, filepath.Join(dir, "a")))
	require.Equal(t, fs.ModeDir|0o777, modeOf(t, filepath.Join(dir, "a/b")))
	require.NoError(t, os.WriteFile(filepath.Join(mounts[0].HostPath, "x"), nil, 0o600))
	require.FileExists(t, filepath.Join(dir, "a/b/x"))
	text, err := os.ReadFile(mounts[1].HostPath)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.NoFileExists(t, filepath.Join(mounts[2].HostPath, "second"))
	require.NotZero(t, modeOf(t, mounts[3].HostPath)&fs.ModeSocket)

	require.NoError(t, os.Remove(filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("two", filepath.Join(dir, "link")))
	require.NoError(t, os.Remove(filepath.Join(dir, "file")))
	mounts, err = m.Mounts(t.Context(), Request{Pod: p, Container: "c", Attempt: 1})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(mounts[2].HostPath, "second"))
	require.True(t, modeOf(t, mounts[1].HostPath).IsDir(), "the file is gone, a directory takes its place")
	points, err := mountsBelow(m.PodDir(uid))
	require.NoError(t, err)
	require.Len(t, points, 4, "mounts of earlier starts do not pile up")
	require.NoError(t, m.TearDown(t.Context(), uid))
}

// No link leads out of the volume, wherever it is in the path, and nothing is
// made outside.
func TestSubPathEscape(t *testing.T) {
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	for _, subPath := range []string{"abs", "abs/secret", "abs/new", "rel", "rel/x", "in/abs", "up", "dangling", "dangling/x", "loop"} {
		m := newManager(t)
		p, dir := subPod(t, m, subPath)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "abs")))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "in", "abs")))
		require.NoError(t, os.Symlink("../../../../../../../../../../../../etc", filepath.Join(dir, "rel")))
		require.NoError(t, os.Symlink("..", filepath.Join(dir, "up")))
		require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
		require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
		_, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
		require.ErrorContainsf(t, err, `cannot mount subPath "`+subPath+`" of volume "e" in container "c": `, "%s", subPath)
		require.NoDirExists(t, filepath.Join(outside, "new"))
		require.NoDirExists(t, filepath.Join(dir, "nowhere"))
		points, err := mountsBelow(m.PodDir(uid))
		require.NoError(t, err)
		require.Empty(t, points)
	}
}

// A directory that becomes a link after it was mounted leads nowhere else.
func TestSubPathSwappedLater(t *testing.T) {
	m := newManager(t)
	p, dir := subPod(t, m, "a")
	mounts, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "a")))
	require.NoFileExists(t, filepath.Join(mounts[0].HostPath, "passwd"))
	require.NoError(t, m.TearDown(t.Context(), uid))
	require.FileExists(t, "/etc/passwd")
}

// INV-15, VOL-5: what someone mounted inside a volume survives, and so does the
// pod's directory until it is unmounted.
func TestForeignMount(t *testing.T) {
	for _, medium := range []corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory} {
		m := newManager(t)
		treasure := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(treasure, "gold"), nil, 0o600))
		v := emptyDirVolume("e")
		v.EmptyDir.Medium = medium
		p := testPod([]corev1.Volume{v, memoryVolume("other", "")}, corev1.VolumeMount{Name: "other", MountPath: "/o", SubPath: "s"})
		require.NoError(t, m.SetUp(t.Context(), p))
		_, err := m.Mounts(t.Context(), Request{Pod: p, Container: "c"})
		require.NoError(t, err)
		inside := filepath.Join(m.emptyDir(uid, "e"), "deep", "mnt")
		require.NoError(t, os.MkdirAll(inside, 0o700))
		require.NoError(t, unix.Mount(treasure, inside, "", unix.MS_BIND, ""))

		err = m.TearDown(t.Context(), uid)
		require.ErrorContains(t, err, "cannot tear down the volumes of pod "+string(uid)+": ")
		require.ErrorContains(t, err, "mounted by someone else")
		require.FileExists(t, filepath.Join(treasure, "gold"))
		require.FileExists(t, filepath.Join(inside, "gold"))
		require.NoError(t, unix.Unmount(inside, 0))
		require.NoError(t, m.TearDown(t.Context(), uid))
		require.NoDirExists(t, m.PodDir(uid))
		require.FileExists(t, filepath.Join(treasure, "gold"))
	}
}

// Removing stops at a mount even when the mount table was read before it came,
// and although a bind mount of the same file system has the same device.
func TestRemoveStopsAtMounts(t *testing.T) {
	m := newManager(t)
	p, dir := subPod(t, m)
	treasure := filepath.Join(filepath.Dir(m.pods), "treasure")
	require.NoError(t, os.Mkdir(treasure, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(treasure, "gold"), nil, 0o600))
	inside := filepath.Join(dir, "mnt")
	require.NoError(t, os.Mkdir(inside, 0o700))
	require.NoError(t, unix.Mount(treasure, inside, "", unix.MS_BIND, ""))
	require.ErrorContains(t, removeTree(t.Context(), m.PodDir(p.UID)), inside+": it is a mount")
	require.FileExists(t, filepath.Join(treasure, "gold"))
}

// Links, many entries, deep trees and strange names are removed, and nothing
// that a link points to.
func TestRemoveTree(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	require.NoError(t, os.Mkdir(outside, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	tree := filepath.Join(base, "tree")
	deep := tree
	for range 50 {
		deep = filepath.Join(deep, "d")
	}
	require.NoError(t, os.MkdirAll(deep, 0o700))
	for i := range 3000 {
		require.NoError(t, os.WriteFile(filepath.Join(tree, "f"+strconv.Itoa(i)), nil, 0o400))
	}
	require.NoError(t, os.WriteFile(filepath.Join(tree, " \n\xff"), nil, 0o400))
	require.NoError(t, os.Symlink(outside, filepath.Join(tree, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(tree, "pipe"), 0o600))
	require.NoError(t, removeTree(t.Context(), tree))
	require.NoDirExists(t, tree)
	require.FileExists(t, filepath.Join(outside, "kept"))
}
