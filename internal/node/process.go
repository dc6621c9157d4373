package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func procLines(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// socketOwner finds a process that has a link to the given socket open.
func socketOwner(link string) (pid int, name string) {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, ""
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != link {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			return pid, "a process"
		}
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}
