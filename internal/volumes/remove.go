package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeTree removes a directory with all that is in it, on one mount: it asks
// of each directory that it has opened which mount it is on, and stops at
// another one. The mount table was read before, but a container's helper or an
// administrator may mount at any time, and a bind mount of the same file system
// shows in nothing else. os.RemoveAll does not look.
func removeTree(ctx context.Context, dir string) error {
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return err
	}
	r := remover{ctx: ctx.Err}
	err = r.stat(int(parent.Fd()), &r.mount)
	if err == nil {
		err = r.remove(int(parent.Fd()), filepath.Base(dir), dir)
	}
	return errors.Join(err, parent.Close())
}

// mountOf names the mount that a file is on. Before Linux 5.8 the kernel tells
// the device alone.
type mountOf struct {
	id           uint64
	major, minor uint32
}

type remover struct {
	ctx   func() error
	mount mountOf
}

func (r *remover) stat(fd int, out *mountOf) error {
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &stx); err != nil {
		return err
	}
	if stx.Mask&unix.STATX_MNT_ID != 0 {
		// The device says less: subvolumes of one mount may have their own.
		*out = mountOf{id: stx.Mnt_id}
		return nil
	}
	*out = mountOf{major: stx.Dev_major, minor: stx.Dev_minor}
	return nil
}

// remove removes one entry of an open directory.
func (r *remover) remove(parent int, name, path string) error {
	if err := r.ctx(); err != nil {
		return err
	}
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	fd, errOpen := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(errOpen, unix.ENOTDIR) {
		return fmt.Errorf("cannot remove %s: %w", path, err) // a file that may not be unlinked
	}
	if errOpen != nil {
		return fmt.Errorf("cannot remove %s: %w", path, errOpen)
	}
	dir := os.NewFile(uintptr(fd), path)
	err = errors.Join(r.empty(dir, path), dir.Close())
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", path, err)
	}
	return nil
}

// empty removes what is in an open directory. Removing while reading makes some
// file systems skip entries, so it reads again until there are none.
func (r *remover) empty(dir *os.File, path string) error {
	var on mountOf
	if err := r.stat(int(dir.Fd()), &on); err != nil {
		return fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if on != r.mount {
		return fmt.Errorf("cannot remove %s: it is a mount", path)
	}
	const batch = 1024
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("cannot list %s: %w", path, err)
		}
		names, err := dir.Readdirnames(batch)
		if len(names) == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("cannot list %s: %w", path, err)
			}
			return nil
		}
		for _, name := range names {
			if err := r.remove(int(dir.Fd()), name, filepath.Join(path, name)); err != nil {
				return err
			}
		}
	}
}
