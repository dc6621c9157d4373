package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// ReasonFailedMount is the reason of errors of SetUp and Mounts.
const ReasonFailedMount = "FailedMount"

// dirMode is the mode of the directories that are not volumes (SP-10).
const dirMode = 0o750

// Options configure a Manager.
type Options struct {
	// Root is the agent's root directory; pods live in Root/pods.
	Root string
	// MemoryBytes is the memory that pods may use; it bounds a tmpfs. Zero leaves
	// that to the kernel.
	MemoryBytes int64
}

// Manager sets up and tears down. It has no state of its own.
type Manager struct {
	pods        string
	memoryBytes int64
}

// New returns a manager. Nothing is created before the first SetUp.
func New(o Options) *Manager {
	return &Manager{pods: filepath.Join(o.Root, "pods"), memoryBytes: o.MemoryBytes}
}

// PodDir returns the directory of a pod.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.pods, string(uid)) }

// Leftovers returns the UIDs of all pods that have a directory.
func (m *Manager) Leftovers() ([]types.UID, error) {
	entries, err := os.ReadDir(m.pods)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the directories of pods: %w", err)
	}
	var uids []types.UID
	for _, entry := range entries {
		if entry.IsDir() {
			uids = append(uids, types.UID(entry.Name()))
		}
	}
	return uids, nil
}

// checkUID keeps a UID from naming anything but one directory below pods.
func checkUID(uid types.UID) error {
	if uid == "" || uid == "." || !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) {
		return pod.Errorf(pod.ClassInvalid, ReasonFailedMount, "cannot use %q as the UID of a pod", uid)
	}
	return nil
}

// failed wraps an error about one volume.
func failed(volume, format string, args ...any) error {
	return pod.Errorf(pod.ClassUnknown, ReasonFailedMount, "cannot set up volume %q: %w", volume, fmt.Errorf(format, args...))
}

// findVolume returns the volume of a pod that has the given name.
func findVolume(spec *corev1.PodSpec, name string) (*corev1.Volume, bool) {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i], true
		}
	}
	return nil, false
}

// source returns the host path of a volume.
func (m *Manager) source(uid types.UID, v *corev1.Volume) (string, error) {
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, nil
	case v.EmptyDir != nil || v.VolumeSource == (corev1.VolumeSource{}):
		return m.emptyDir(uid, v.Name), nil
	}
	return "", pod.Errorf(pod.ClassInvalid, ReasonFailedMount, "cannot set up volume %q: its kind is not supported", v.Name)
}
