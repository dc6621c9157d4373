package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bytesMax is the size that a file or body may have (CFG-11).
const bytesMax = 10 << 20

// stamp tells versions of a file apart without reading it.
type stamp struct {
	dev, inode uint64
	size       int64
	changed    time.Time
	mode       fs.FileMode
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), changed: info.ModTime(), mode: info.Mode()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode = sys.Dev, sys.Ino
	}
	return s
}

// listing is what a path holds at one moment.
type listing struct {
	files map[string]listed // by path
	// missing says that the path does not exist, which is an empty set.
	missing bool
	// links are the manifests that are symbolic links.
	links []string
}

// listed is one manifest of a listing: its stamp, or why it cannot be read.
type listed struct {
	stamp stamp
	err   error
}

// list looks at a path: a file, or a directory without its subdirectories
// (CFG-10). It follows symbolic links. An error means that nothing is known.
func list(path string) (listing, error) {
	l := listing{files: map[string]listed{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		l.missing = true
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	if !info.IsDir() {
		l.add(path, info, nil)
		return l, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return l, fmt.Errorf("cannot list %s: %w", path, err)
	}
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		if !isManifest(entry.Name()) {
			continue
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			l.links = append(l.links, name)
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0 {
			continue // went away since the directory was read
		}
		if err == nil && info.IsDir() {
			continue
		}
		l.add(name, info, err)
	}
	return l, nil
}

func (l *listing) add(path string, info fs.FileInfo, err error) {
	switch {
	case err != nil:
		l.files[path] = listed{err: fmt.Errorf("cannot look at %s: %w", path, err)}
	case !info.Mode().IsRegular():
		l.files[path] = listed{err: fmt.Errorf("cannot read %s: it is not a regular file but %s", path, kindOf(info.Mode()))}
	case info.Size() > bytesMax:
		l.files[path] = listed{err: fmt.Errorf("cannot read %s: %d bytes are more than the limit of %d", path, info.Size(), bytesMax)}
	default:
		l.files[path] = listed{stamp: stampOf(info)}
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// read reads a file that was listed. It fails with errTorn when the file was
// changed meanwhile.
func read(path string, want stamp) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, bytesMax+1))
	after, errStat := file.Stat()
	if err = errors.Join(err, errStat, file.Close()); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if stampOf(after) != want || int64(len(data)) != want.size {
		return nil, errTorn
	}
	return data, nil
}

var errTorn = errors.New("the file is being changed")
