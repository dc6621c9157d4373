package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const subPathsDir = "volume-subpaths"

// bindSubPath mounts a path inside a volume on target. The containers that
// share the volume may exchange directories for links at any time, so the path
// is resolved inside the volume, and what was found is mounted by file
// descriptor and not by name (VOL-23). It is resolved anew at each start.
func bindSubPath(volume, subPath, target string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	file, err := openSubPath(root, filepath.Clean(subPath))
	if err = errors.Join(err, root.Close()); err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return err
	}
	return errors.Join(bind(file, target), file.Close())
}

// openSubPath opens what is at a path inside a volume, and makes directories,
// with the mode of the volume, where nothing is. Links are followed as long as
// they stay inside.
func openSubPath(root *os.Root, path string) (*os.File, error) {
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	done := ""
	for step := range strings.SplitSeq(path, string(filepath.Separator)) {
		done = filepath.Join(done, step)
		if _, err := root.Stat(done); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		err := root.Mkdir(done, 0o700)
		if errors.Is(err, fs.ErrExist) {
			// Another container's start made it, or it is a link to nowhere,
			// which the next step or the opening reports.
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := root.Chmod(done, info.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	flags := unix.O_PATH // works for sockets and devices as well, and wakes nobody
	if link, err := root.Lstat(path); err != nil {
		return nil, err
	} else if link.Mode()&fs.ModeSymlink != 0 {
		flags = os.O_RDONLY | unix.O_NONBLOCK // O_PATH would open the link itself
	}
	file, err := root.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return nil, errors.Join(fmt.Errorf("%s changes while it is being resolved", path), err, file.Close())
	}
	return file, nil
}

// bind mounts an open file on target in place of what an earlier instance had
// there. The old mount is only the host's name for it: containers that have it
// keep it.
func bind(file *os.File, target string) error {
	if err := unmountAll(target); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	source := "/proc/self/fd/" + strconv.FormatUint(uint64(file.Fd()), 10)
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot bind it to %s: %w", target, err)
	}
	return nil
}

// makeTarget makes an empty directory or file to mount on.
func makeTarget(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	// What is there is an empty target of ours; the kind may have changed.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir {
		return os.Mkdir(target, dirMode)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
