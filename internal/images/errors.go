package images

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UnavailableError says that there is no containerd to speak to.
type UnavailableError struct {
	Endpoint string
	Err      error
}

func (e *UnavailableError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist):
		return fmt.Sprintf("cannot reach containerd: no socket at %s; start it: systemctl start containerd, or name the socket with --runtime-endpoint", e.Endpoint)
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("cannot reach containerd: nobody answers at %s; start it: systemctl start containerd", e.Endpoint)
	}
	return fmt.Sprintf("cannot reach containerd at %s: %v", e.Endpoint, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// ArchiveError says that an archive cannot be used as it is. Trying again gives
// the same.
type ArchiveError struct{ Err error }

func (e *ArchiveError) Error() string { return e.Err.Error() }

func (e *ArchiveError) Unwrap() error { return e.Err }

func badArchive(format string, args ...any) error {
	return &ArchiveError{fmt.Errorf(format, args...)}
}

// source remembers why the reader of an archive failed, since what is made of it
// on the way does not always keep it.
type source struct {
	reader io.Reader
	err    error
	ended  bool
}

// Read implements [io.Reader].
func (s *source) Read(b []byte) (int, error) {
	n, err := s.reader.Read(b)
	if errors.Is(err, io.EOF) {
		s.ended = true
	} else if err != nil {
		s.err = err
	}
	return n, err
}

// cut reports whether an import failed because the archive is too short. A
// connection that breaks can say the same, before the archive has ended.
func (s *source) cut(err error) bool {
	return errors.Is(s.err, io.ErrUnexpectedEOF) || s.ended && errors.Is(err, io.ErrUnexpectedEOF)
}

// importFailed says what a failure to import means. Some of it reaches us as
// text alone: what the library and the daemon say of the disk, of formats and of
// layers. A text that is not recognised is passed on as it is.
func importFailed(err error, from *source) error {
	text := err.Error()
	if isAway(err) {
		return fmt.Errorf("cannot import: containerd went away: %w", err)
	}
	if strings.HasSuffix(text, "failed to send write: EOF") { // the stream to containerd
		return fmt.Errorf("cannot import: containerd went away: %w: %w", errdefs.ErrUnavailable, err)
	}
	switch {
	case from.err != nil && !from.cut(err) && !damaged(from.err):
		return fmt.Errorf("cannot read the archive: %w", from.err)
	case strings.Contains(text, "no space left on device"), strings.Contains(text, "disk quota exceeded"):
		return fmt.Errorf("cannot import: the disk of containerd is full; make room, such as with nodelet images rm, and import again: %w", err)
	case from.cut(err):
		return badArchive("cannot import: the archive is cut short; copy it again: %w", err)
	case damaged(err), strings.Contains(text, "wrong diff id"), strings.Contains(text, "invalid diff"):
		return badArchive("cannot import: the archive is damaged; copy it again: %w", err)
	case errors.Is(err, tar.ErrHeader), strings.Contains(text, "unrecognized image format"):
		return badArchive("cannot import: this is not an image archive, neither an OCI layout nor what docker save writes: %w", err)
	case errdefs.IsNotFound(err):
		return badArchive("cannot import: the archive is damaged or incomplete, something that it names is not in it: %w", err)
	case strings.Contains(text, "untar"), strings.Contains(text, "unsupported OCI version"), strings.Contains(text, "missing index.json"),
		strings.Contains(text, "normalize image ref"):
		return badArchive("cannot import: the archive is not valid: %w", err)
	}
	return fmt.Errorf("cannot import: %w", err)
}

// isAway reports whether an error says that containerd cannot be asked now.
func isAway(err error) bool {
	if _, ok := errors.AsType[*UnavailableError](err); ok {
		return true
	}
	return err != nil && (errdefs.IsUnavailable(err) || status.Code(err) == codes.Unavailable)
}

func damaged(err error) bool {
	return errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || strings.Contains(err.Error(), "invalid checksum") ||
		strings.Contains(err.Error(), "magic number mismatch") || strings.Contains(err.Error(), "flate: corrupt input") ||
		strings.Contains(err.Error(), "checksum mismatch")
}
