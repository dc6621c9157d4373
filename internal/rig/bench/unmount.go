package main

import (
	"errors"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// unmountBelow takes away the mounts that an agent left below its directory: a
// kubelet that ends leaves those of its pods.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		errs = append(errs, unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}
