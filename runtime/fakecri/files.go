package fakecri

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fileSystem is a container's own files: a set of paths with content. Directories need not exist.
type fileSystem struct {
	mu    sync.Mutex // guards files
	files map[string]string
}

func newFileSystem() *fileSystem { return &fileSystem{files: map[string]string{}} }

// writeResolvConf is what a runtime makes of the pod's DNS settings.
func (f *fileSystem) writeResolvConf(dns *runtimeapi.DNSConfig) {
	var text strings.Builder
	if len(dns.GetSearches()) > 0 {
		text.WriteString("search " + strings.Join(dns.GetSearches(), " ") + "\n")
	}
	for _, server := range dns.GetServers() {
		text.WriteString("nameserver " + server + "\n")
	}
	if len(dns.GetOptions()) > 0 {
		text.WriteString("options " + strings.Join(dns.GetOptions(), " ") + "\n")
	}
	f.write("/etc/resolv.conf", text.String(), false)
}

func (f *fileSystem) read(path string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, found := f.files[path]
	return content, found
}

// under lists what a directory holds, or the path itself if it is a file.
func (f *fileSystem) under(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]bool{}
	for file := range f.files {
		if file == path {
			names[path] = true
		}
		if rest, found := strings.CutPrefix(file, strings.TrimSuffix(path, "/")+"/"); found {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (f *fileSystem) write(path, content string, appending bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if appending {
		content = f.files[path] + content
	}
	f.files[path] = content
}

func (f *fileSystem) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files, path)
}

// logFile is a container's log in the format of CRI. The zero value discards what is written.
type logFile struct {
	mu   sync.Mutex // guards file, which a rotation replaces
	file *os.File
}

// open also reopens: what follows goes to a new file if the old one was renamed.
func (l *logFile) open(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	l.mu.Lock()
	old := l.file
	l.file = file
	l.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

func (l *logFile) write(stream, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	for line := range strings.Lines(text) {
		tag := "P"
		if strings.HasSuffix(line, "\n") {
			tag = "F"
		}
		// A full disk loses log lines in containerd too.
		_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), stream, tag, strings.TrimSuffix(line, "\n"))
	}
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
