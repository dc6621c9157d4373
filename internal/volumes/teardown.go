package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// ReasonFailedUnmount is the reason of errors of TearDown.
const ReasonFailedUnmount = "FailedUnMount"

// TearDown unmounts what SetUp and Mounts mounted and removes the directory of
// a pod. It deletes nothing while something else is mounted below, and it never
// descends into a mount (INV-15, VOL-5). A pod without a directory is done.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	dir := m.PodDir(uid)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	wrap := func(err error) error {
		return pod.Errorf(pod.ClassUnknown, ReasonFailedUnmount, "cannot tear down the volumes of pod %s: %w", uid, err)
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return wrap(err)
	}
	var errs []error
	// The newest mount is the last of the table and lies on top.
	for _, point := range slices.Backward(points) {
		if m.isOwn(dir, point) && !coversForeign(m, dir, point, points) {
			if err := unmount(point); err != nil {
				errs = append(errs, err)
			}
		}
	}
	points, err = mountsBelow(dir)
	if err = errors.Join(append(errs, err)...); err != nil {
		return wrap(err)
	}
	if len(points) > 0 {
		return wrap(fmt.Errorf("%s is mounted by someone else; nothing is removed until it is unmounted", points[0]))
	}
	if err := removeTree(ctx, dir); err != nil {
		return wrap(err)
	}
	return nil
}

// isOwn reports whether a mount point is one that this package makes.
func (m *Manager) isOwn(dir, point string) bool {
	rel, err := filepath.Rel(dir, point)
	if err != nil {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	return (len(parts) == 3 && parts[0] == "volumes" && parts[1] == "kubernetes.io~empty-dir") ||
		(len(parts) == 4 && parts[0] == subPathsDir)
}

// coversForeign reports whether something else is mounted inside a mount.
func coversForeign(m *Manager, dir, point string, points []string) bool {
	return slices.ContainsFunc(points, func(other string) bool {
		return strings.HasPrefix(other, point+"/") && !m.isOwn(dir, other)
	})
}

// mountsBelow returns the mount points at and below a directory in the order
// of the kernel's table. The kernel knows no links, so they are resolved.
func mountsBelow(dir string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve %s: %w", dir, err)
	}
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return nil, fmt.Errorf("cannot read the mount table: %w", err)
	}
	var points []string
	for _, info := range infos {
		rel, err := filepath.Rel(resolved, info.Mountpoint)
		if err != nil {
			return nil, fmt.Errorf("cannot read the mount table: %w", err)
		}
		points = append(points, filepath.Join(dir, rel))
	}
	return points, nil
}

func isMounted(path string) (bool, error) {
	points, err := mountsBelow(path)
	return slices.Contains(points, path), err
}

// unmountAll unmounts everything that is mounted on a path; none is fine.
func unmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // not a mount point, or not there at all
		case errors.Is(err, unix.EBUSY):
			// Someone on the host stands in it. Their view stays; ours goes.
			err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("cannot unmount %s: %w", path, err)
		}
	}
}

func unmount(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unmount %s: %w", path, err)
	}
	return nil
}
