package node

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileSystemOf(t *testing.T) {
	proc, err := FileSystemOf("/proc/self")
	require.NoError(t, err)
	require.Equal(t, "/proc", proc.Mount)
	dir := t.TempDir()
	own, err := FileSystemOf(dir)
	require.NoError(t, err)
	require.Positive(t, own.Total)
	require.LessOrEqual(t, own.Free, own.Total)
	require.True(t, filepath.IsAbs(own.Mount))
	above, err := FileSystemOf(own.Mount)
	require.NoError(t, err)
	require.Equal(t, own.Mount, above.Mount)
	_, err = FileSystemOf(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "cannot look at the file system of "+dir+"/none: no such file")
}

func TestFileSystemText(t *testing.T) {
	f := FileSystem{Mount: "/var", Total: 3 << 29, Free: 4096, Inodes: 10, InodesFree: 1}
	require.Equal(t, "the file system at /var has 4096 bytes free of 1.5 GiB", f.String())
	f.InodesFree = 0
	require.Equal(t, "the file system at /var has no free inodes of 10", f.String())
}

func TestSize(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 1 << 40: "1.0 TiB", 5000 << 40: "5000.0 TiB"} {
		require.Equal(t, want, Size(bytes))
	}
}
