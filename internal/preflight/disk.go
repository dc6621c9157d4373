package preflight

import (
	"fmt"
	"path/filepath"
	"strings"

	"nodelet.dev/nodelet/internal/node"
)

// Below these a disk is nearly full. The shares are those at which a kubelet
// begins to evict by default.
const (
	freeMinBytes     = 100 << 20
	freeMinPercent   = 10
	inodesMinPercent = 5
)

// disk looks at the file systems that hold the paths; an empty path is none.
func disk(m Machine, paths []string) Result {
	const name = "disk"
	var order []string
	systems, users := map[string]node.FileSystem{}, map[string][]string{}
	for _, path := range paths {
		if path == "" {
			continue
		}
		fs, err := m.FileSystem(existing(m, path))
		if err != nil {
			return fail(name, "make sure that its file system is mounted and answers", "%v", err)
		}
		if _, seen := systems[fs.Mount]; !seen {
			order = append(order, fs.Mount)
		}
		systems[fs.Mount] = fs
		users[fs.Mount] = append(users[fs.Mount], path)
	}
	worst := OK
	var texts, full []string
	for _, mount := range order {
		fs := systems[mount]
		status, text := rate(fs)
		if status != OK {
			full = append(full, mount)
		}
		if status == Fail || worst == OK {
			worst = status
		}
		texts = append(texts, fmt.Sprintf("%s on %s for %s", text, mount, strings.Join(users[mount], ", ")))
	}
	r := Result{Name: name, Status: worst, Message: strings.Join(texts, "; ")}
	if worst != OK {
		r.Fix = "make room on " + strings.Join(full, " and ") + ": remove what nobody needs (nodelet images ls, journalctl --vacuum-size=100M), or enlarge it"
	}
	return r
}

// existing returns the path, or the nearest directory above it that exists: an
// agent makes its own.
func existing(m Machine, path string) string {
	for path != "/" && !m.exists(path) {
		path = filepath.Dir(path)
	}
	return path
}

func rate(fs node.FileSystem) (Status, string) {
	text := fmt.Sprintf("%s of %s free", node.Size(fs.Free), node.Size(fs.Total))
	lowInodes := fs.Inodes > 0 && fs.InodesFree*100 < fs.Inodes*inodesMinPercent
	if lowInodes {
		text += fmt.Sprintf(", and %d of %d inodes", fs.InodesFree, fs.Inodes)
	}
	switch {
	case fs.Free < freeMinBytes, fs.Inodes > 0 && fs.InodesFree == 0:
		return Fail, text
	case fs.Free*100 < fs.Total*freeMinPercent, lowInodes:
		return Warn, text
	}
	return OK, text
}
