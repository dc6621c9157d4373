package node

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FileSystem is one that is mounted. Sizes are in bytes, and what is free is free
// for everybody and not for root alone.
type FileSystem struct {
	Mount      string // where it is mounted
	Total      uint64
	Free       uint64
	Inodes     uint64 // zero where the file system does not count them
	InodesFree uint64
}

// FileSystemOf returns the file system that holds a path.
func FileSystemOf(path string) (FileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FileSystem{}, fmt.Errorf("cannot look at the file system of %s: %w", path, err)
	}
	block := uint64(max(st.Frsize, 0))
	return FileSystem{
		Mount: mountOf(path), Total: st.Blocks * block, Free: st.Bavail * block,
		Inodes: st.Files, InodesFree: st.Ffree,
	}, nil
}

// String tells what is left, for messages about a disk that is full.
func (f FileSystem) String() string {
	if f.Inodes > 0 && f.InodesFree == 0 {
		return fmt.Sprintf("the file system at %s has no free inodes of %d", f.Mount, f.Inodes)
	}
	return fmt.Sprintf("the file system at %s has %d bytes free of %s", f.Mount, f.Free, Size(f.Total))
}

// Size returns a number of bytes as people read it, such as 1.5 GiB.
func Size(bytes uint64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value /= step; value < step {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// mountOf walks up for as long as the device stays the same. A bind mount of the
// same file system does not show, and does not matter for what is free.
func mountOf(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "/"
	}
	device := func(path string) (uint64, bool) {
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		return st.Dev, err == nil
	}
	own, known := device(path)
	for known && path != string(os.PathSeparator) {
		above, known := device(filepath.Dir(path))
		if !known || above != own {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}
