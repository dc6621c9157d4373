package source

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writing says whether some process has the file open for writing. The kernel
// grants a read lease only when nobody has, which tells a finished file from
// one that is half written, at once and for sure; inotify's close event would
// too, but the watcher library does not pass it on. A writer that comes while
// the lease is held waits the few microseconds until it is given back; the
// signal about it has no effect on a Go program. Where leases are refused (a
// foreign file system, no CAP_LEASE) known is false.
func writing(path string) (is, known bool) {
	file, err := os.Open(path)
	if err != nil {
		return false, false
	}
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	// Closing gives the lease back.
	errClose := file.Close()
	if errors.Is(err, unix.EAGAIN) {
		return true, true
	}
	return false, err == nil && errClose == nil
}
