package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"nodelet.dev/nodelet/internal/node"
)

// NewerFormatError says that the file was written by a newer nodelet. The file
// is unchanged.
type NewerFormatError struct {
	Path      string
	Format    int
	Supported int
}

// Error names the file and both formats.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("cannot use %s: state format %d is newer than supported %d; pods were not touched", e.Path, e.Format, e.Supported)
}

// LockedError says that another process holds the state.
type LockedError struct {
	Path string
	PID  int // 0 when it cannot be told
}

// Error names the process as far as it is known.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("cannot use %s: another process holds it", e.Path)
	}
	return fmt.Sprintf("cannot use %s: another instance (pid %d) holds %s", e.Path, e.PID, lockFile(e.Path))
}

// CorruptError says that the file is no state file, or a damaged one.
type CorruptError struct {
	Path string
	Err  error
}

// Error names the file and the damage.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("cannot use %s: it is damaged: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// FullError says that the disk or the quota is used up. Nothing of the write
// was kept, and everything before it still is.
type FullError struct {
	Path string
	Left string // what there is left, empty when it cannot be told
	Err  error
}

// full is the error of a write that the disk did not take.
func full(path string, err error) *FullError {
	e := &FullError{Path: path, Err: err}
	if fs, lookErr := node.FileSystemOf(filepath.Dir(path)); lookErr == nil {
		e.Left = fs.String()
	}
	return e
}

// Error names the file, its file system and what there is left.
func (e *FullError) Error() string {
	text := fmt.Sprintf("cannot write %s: the disk is full", e.Path)
	if e.Left != "" {
		text += ": " + e.Left
	}
	return fmt.Sprintf("%s: %v; make room there", text, e.Err)
}

// Unwrap returns the cause.
func (e *FullError) Unwrap() error { return e.Err }

// ErrClosed is returned by writes after Close.
var ErrClosed = errors.New("cannot write the state: the store is closed")

// classify gives a failed write its type.
func classify(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return full(path, err)
	}
	return fmt.Errorf("cannot write %s: %w", path, err)
}
