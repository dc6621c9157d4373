package rig

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sweep stops the owned instances under dir whose owner has died: a test that is killed, for example by its timeout,
// stops nothing itself.
func Sweep(ctx context.Context, dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*", savedName))
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range paths {
		c, err := Open(filepath.Dir(path))
		if err != nil || c.saved.OwnerTicks == 0 || startTicks(c.saved.OwnerPid) == c.saved.OwnerTicks {
			continue // not ours to judge, or in use
		}
		failures = append(failures, c.Stop(ctx))
	}
	return errors.Join(failures...)
}

// removeCNICache removes what libcni remembers of network namespaces under dir. Its directory is fixed, and it forgets
// by itself only what the plug-ins took down in good order. The key of the path differs between releases.
func removeCNICache(dir string) error {
	paths, err := filepath.Glob("/var/lib/cni/results/*")
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(`":"`+dir+"/state/")) {
			failures = append(failures, os.Remove(path))
		}
	}
	return errors.Join(failures...)
}

// defaultCgroups lists the control groups that runc makes for pods without a parent of their own, one per hierarchy.
func defaultCgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		paths, err := filepath.Glob(pattern)
		if err == nil {
			found = append(found, paths...)
		}
	}
	return found
}

// removeDefaultCgroups removes those that are empty; a group in use cannot be removed, which is as it should be.
func removeDefaultCgroups() {
	for _, path := range defaultCgroups() {
		_ = os.Remove(path)
	}
}

// anyContainerd tells whether a containerd runs on this machine. The groups are then left alone: runc fails if its
// parent directory goes away while it makes a group.
func anyContainerd() bool {
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	return err != nil || slices.ContainsFunc(paths, func(path string) bool {
		comm, err := os.ReadFile(path)
		return err == nil && strings.TrimSpace(string(comm)) == "containerd"
	})
}
