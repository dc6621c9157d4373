package preflight

import (
	"context"
	"fmt"
	"time"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A warning does not keep an agent from working.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Result is what a check found.
type Result struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Fix says what to do about a warning or failure.
	Fix string `json:"fix,omitempty"`
}

// Settings are the part of the configuration that the checks depend on.
type Settings struct {
	RootDirectory   string
	PodLogsDir      string
	RuntimeEndpoint string // a path or a unix:// URL
	ImageEndpoint   string // empty means the runtime's
}

// Options say what to look at.
type Options struct {
	Machine Machine
	// Settings are nil when there is no usable configuration. What depends on it
	// is then not looked at.
	Settings *Settings
}

// callTimeout bounds each question to the runtime.
const callTimeout = 5 * time.Second

// Run makes the checks, one after the other. It takes no longer than callTimeout
// for each question that the runtime leaves unanswered.
func Run(ctx context.Context, o Options) []Result {
	m := o.Machine
	list := []Result{root(m), kernel(m), clock(m), cgroups(m), forwarding(m)}
	if o.Settings == nil {
		return list
	}
	s := *o.Settings
	held := lock(m, s.RootDirectory)
	list = append(list, held.result)
	r := look(ctx, m, s)
	list = append(list, r.results...)
	list = append(list, disk(m, []string{s.RootDirectory, s.PodLogsDir, r.config.ContainerdRootDir}))
	return append(list, others(m, s.RuntimeEndpoint, held.pid, r.sandboxes))
}

func ok(name, format string, args ...any) Result {
	return Result{Name: name, Status: OK, Message: fmt.Sprintf(format, args...)}
}

func warn(name, fix, format string, args ...any) Result {
	return Result{Name: name, Status: Warn, Fix: fix, Message: fmt.Sprintf(format, args...)}
}

func fail(name, fix, format string, args ...any) Result {
	return Result{Name: name, Status: Fail, Fix: fix, Message: fmt.Sprintf(format, args...)}
}
