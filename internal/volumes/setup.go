package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"nodelet.dev/nodelet/internal/pod"
)

// SetUp makes the directory of a pod and all its volumes. What is there
// already stays as it is, whatever its containers did to it since. All volumes
// that fail are named in one error.
func (m *Manager) SetUp(ctx context.Context, p *corev1.Pod) error {
	if err := checkUID(p.UID); err != nil {
		return err
	}
	// The rest is made when something is put there: in a burst of pods, making
	// directories is what the agent itself spends most on.
	if err := os.MkdirAll(m.PodDir(p.UID), dirMode); err != nil {
		return pod.Errorf(pod.ClassUnknown, ReasonFailedMount, "cannot make the directory of pod %s: %w", pod.KeyOf(p), err)
	}
	var errs []error
	for i := range p.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return pod.Errorf(pod.ClassCancelled, ReasonFailedMount, "cannot set up the volumes of pod %s: %w", pod.KeyOf(p), err)
		}
		v := &p.Spec.Volumes[i]
		_, err := m.source(p.UID, v)
		switch {
		case err != nil:
		case v.HostPath != nil:
			err = checkHostPath(v.Name, v.HostPath)
		default:
			err = m.setUpEmptyDir(p, v)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (m *Manager) emptyDir(uid types.UID, name string) string {
	return filepath.Join(m.PodDir(uid), "volumes", "kubernetes.io~empty-dir", name)
}

// setUpEmptyDir makes the directory under another name first, so that it never
// exists with a wrong mode: the umask applies to its making (VOL-6), and a
// container may change the mode later, which has to stay.
func (m *Manager) setUpEmptyDir(p *corev1.Pod, v *corev1.Volume) error {
	dir := m.emptyDir(p.UID, v.Name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), dirMode); err != nil {
			return failed(v.Name, "cannot make its directory: %w", err)
		}
		fresh := filepath.Join(filepath.Dir(dir), "."+v.Name+".new")
		err := os.Mkdir(fresh, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = nil // left over from an interrupted attempt
		}
		if err = errors.Join(err, os.Chmod(fresh, 0o777)); err != nil {
			return failed(v.Name, "cannot make its directory: %w", err)
		}
		if err := os.Rename(fresh, dir); err != nil {
			return failed(v.Name, "cannot make its directory: %w", err)
		}
	} else if err != nil {
		return failed(v.Name, "cannot look at its directory: %w", err)
	}
	if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory {
		return nil
	}
	mounted, err := isMounted(dir)
	if err != nil || mounted {
		return err
	}
	return mountTmpfs(v.Name, dir, m.tmpfsBytes(p, v))
}

// tmpfsBytes is the smallest of the limits that apply (VOL-7), or 0 for none.
func (m *Manager) tmpfsBytes(p *corev1.Pod, v *corev1.Volume) int64 {
	size := m.memoryBytes
	lower := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	limited := true
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Resources.Limits.Memory().IsZero() {
				limited = false
			}
		}
	}
	if limited {
		limits := resource.PodLimits(p, resource.PodResourcesOptions{})
		lower(limits.Memory().Value())
	}
	if v.EmptyDir.SizeLimit != nil {
		lower(v.EmptyDir.SizeLimit.Value())
	}
	return size
}

// mountTmpfs keeps the content out of swap where the kernel can.
func mountTmpfs(volume, dir string, size int64) error {
	options := "mode=0777"
	if size > 0 {
		options += ",size=" + strconv.FormatInt(size, 10)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, options) // before Linux 6.4
	}
	if err != nil {
		return failed(volume, "cannot mount a tmpfs on %s: %w", dir, err)
	}
	return nil
}

// checkHostPath does what the type asks for (VOL-11). Without a type nothing is
// checked, and the runtime decides about a missing path (VOL-12).
func checkHostPath(volume string, h *corev1.HostPathVolumeSource) error {
	if h.Type == nil || *h.Type == corev1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch *h.Type {
		case corev1.HostPathDirectoryOrCreate:
			if err := os.MkdirAll(h.Path, 0o755); err != nil {
				return failed(volume, "cannot make the host directory %s: %w", h.Path, err)
			}
			return nil
		case corev1.HostPathFileOrCreate:
			return createFile(volume, h.Path)
		default:
			return failed(volume, "host path %s must be %s, but does not exist", h.Path, nameOfType(*h.Type))
		}
	}
	if err != nil {
		return failed(volume, "cannot look at host path %s: %w", h.Path, err)
	}
	if !fits(*h.Type, info.Mode()) {
		return failed(volume, "host path %s must be %s, but is %s", h.Path, nameOfType(*h.Type), nameOfMode(info.Mode()))
	}
	return nil
}

// createFile makes an empty file; its directory must exist.
func createFile(volume, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return failed(volume, "cannot make the host file %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return failed(volume, "cannot make the host file %s: %w", path, err)
	}
	return nil
}

func fits(t corev1.HostPathType, mode fs.FileMode) bool {
	switch t {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return mode.IsRegular()
	case corev1.HostPathSocket:
		return mode&fs.ModeSocket != 0
	case corev1.HostPathCharDev:
		return mode&fs.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	case corev1.HostPathUnset:
		return true
	}
	return false
}

func nameOfType(t corev1.HostPathType) string {
	switch t {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return "a directory"
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return "a file"
	case corev1.HostPathSocket:
		return "a socket"
	case corev1.HostPathCharDev:
		return "a character device"
	case corev1.HostPathBlockDev:
		return "a block device"
	case corev1.HostPathUnset:
		return "anything"
	}
	return fmt.Sprintf("of type %q", t)
}

func nameOfMode(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a file"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeCharDevice != 0:
		return "a character device"
	case mode&fs.ModeDevice != 0:
		return "a block device"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "something else"
}
