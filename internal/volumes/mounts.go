package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Request asks for the mounts of one container instance.
type Request struct {
	Pod       *corev1.Pod
	Container string
	Attempt   uint32
	// HostsText is the text of the pod's hosts file; "" mounts none (HN-6).
	HostsText string
}

const hostsPath = "/etc/hosts"

// Mounts makes the mounts of one container instance ready and returns them:
// volume mounts in the order of the spec, then the hosts file and the file for
// the termination message (VOL-27), unless the container mounts something else
// there.
func (m *Manager) Mounts(ctx context.Context, r Request) ([]pod.Mount, error) {
	if err := checkUID(r.Pod.UID); err != nil {
		return nil, err
	}
	c, kind := pod.Find(&r.Pod.Spec, r.Container)
	if kind == pod.KindUnknown {
		return nil, pod.Errorf(pod.ClassInvalid, ReasonFailedMount, "cannot mount for container %q: pod %s has none of this name", r.Container, pod.KeyOf(r.Pod))
	}
	var mounts []pod.Mount
	taken := map[string]bool{}
	for i := range c.VolumeMounts {
		if err := ctx.Err(); err != nil {
			return nil, pod.Errorf(pod.ClassCancelled, ReasonFailedMount, "cannot mount for container %q: %w", r.Container, err)
		}
		mount, err := m.volumeMount(r.Pod, c, i)
		if err != nil {
			return nil, err
		}
		taken[filepath.Clean(mount.ContainerPath)] = true
		mounts = append(mounts, mount)
	}
	if r.HostsText != "" && !taken[hostsPath] {
		file := filepath.Join(m.PodDir(r.Pod.UID), "etc-hosts")
		if err := replaceFile(file, []byte(r.HostsText), 0o644); err != nil {
			return nil, pod.Errorf(pod.ClassUnknown, ReasonFailedMount, "cannot write the hosts file of pod %s: %w", pod.KeyOf(r.Pod), err)
		}
		mounts = append(mounts, pod.Mount{HostPath: file, ContainerPath: hostsPath, Propagation: corev1.MountPropagationNone})
	}
	if target := c.TerminationMessagePath; target != "" && !taken[filepath.Clean(target)] {
		file, err := m.prepareMessage(r.Pod.UID, r.Container, r.Attempt)
		if err != nil {
			return nil, pod.Errorf(pod.ClassUnknown, ReasonFailedMount, "cannot make the termination message file of container %q: %w", r.Container, err)
		}
		mounts = append(mounts, pod.Mount{HostPath: file, ContainerPath: target, Propagation: corev1.MountPropagationNone})
	}
	return mounts, nil
}

// volumeMount resolves one volume mount. A path without a leading slash is
// taken from the root of the container, as the runtime would.
func (m *Manager) volumeMount(p *corev1.Pod, c *corev1.Container, index int) (pod.Mount, error) {
	vm := &c.VolumeMounts[index]
	v, ok := findVolume(&p.Spec, vm.Name)
	if !ok {
		return pod.Mount{}, pod.Errorf(pod.ClassInvalid, ReasonFailedMount, "cannot mount volume %q in container %q: pod %s has none of this name", vm.Name, c.Name, pod.KeyOf(p))
	}
	source, err := m.source(p.UID, v)
	if err != nil {
		return pod.Mount{}, err
	}
	if vm.SubPath != "" {
		target := filepath.Join(m.PodDir(p.UID), subPathsDir, v.Name, c.Name, strconv.Itoa(index))
		if err := bindSubPath(source, vm.SubPath, target); err != nil {
			return pod.Mount{}, pod.Errorf(pod.ClassUnknown, ReasonFailedMount, "cannot mount subPath %q of volume %q in container %q: %w", vm.SubPath, v.Name, c.Name, err)
		}
		source = target
	}
	mount := pod.Mount{
		HostPath: source, ContainerPath: filepath.Join("/", vm.MountPath),
		ReadOnly: vm.ReadOnly, Propagation: corev1.MountPropagationNone,
	}
	if vm.MountPropagation != nil {
		mount.Propagation = *vm.MountPropagation
	}
	return mount, nil
}

// replaceFile writes a file by a rename, so that containers which are started
// side by side never see a part of it. The same text is not written again.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// messagesKept is how many message files of earlier instances stay.
const messagesKept = 5

// TerminationMessagePath returns the file on the host into which an instance
// writes its last words (STC-9).
func (m *Manager) TerminationMessagePath(uid types.UID, container string, attempt uint32) string {
	return filepath.Join(m.PodDir(uid), "containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// prepareMessage makes the file of an instance, empty unless the instance was
// prepared before, and drops that of an old one.
func (m *Manager) prepareMessage(uid types.UID, container string, attempt uint32) (string, error) {
	file := m.TerminationMessagePath(uid, container, attempt)
	if err := os.MkdirAll(filepath.Dir(file), dirMode); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(f.Chmod(0o666), f.Close()); err != nil {
		return "", err
	}
	if attempt >= messagesKept {
		old := m.TerminationMessagePath(uid, container, attempt-messagesKept)
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("cannot remove an old one: %w", err)
		}
	}
	return file, nil
}
