package fakecri

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Process is a running container as its program sees it.
type Process struct {
	// Name is the container's; Attempt its attempt; UID, Pod and Namespace are of its pod.
	Name, UID, Pod, Namespace string
	Attempt                   uint32
	// Command is command and args of the container, or the image's own.
	Command []string
	// Env holds the container's variables.
	Env map[string]string
	// Init tells that the process is PID 1 of its namespace, which ignores a TERM that it does not handle.
	Init bool

	terminated chan struct{} // closed by the first TERM
	killed     chan struct{} // closed when the container has ended, for whatever reason
	exited     chan struct{} // closed by endLocked
	termOnce   sync.Once
	killOnce   sync.Once
	oomKilled  bool // set by the program's own goroutine, read after it returned
	files      *fileSystem
	log        *logFile
	hostname   string
}

// Terminated is closed when the container has been sent TERM.
func (p *Process) Terminated() <-chan struct{} { return p.terminated }

// Stdout writes to the container's log, line by line.
func (p *Process) Stdout(text string) { p.log.write("stdout", text) }

// Stderr writes to the container's log.
func (p *Process) Stderr(text string) { p.log.write("stderr", text) }

// OutOfMemory makes the exit count as a kill by the kernel for want of memory. The program should return 137 next.
func (p *Process) OutOfMemory() { p.oomKilled = true }

// Sleep waits and tells whether the time passed; false means that the container was killed.
func (p *Process) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.killed:
		return false
	}
}

func (p *Process) terminate() { p.termOnce.Do(func() { close(p.terminated) }) }
func (p *Process) kill()      { p.killOnce.Do(func() { close(p.killed) }) }

func (p *Process) ctx() context.Context { return lifetime{p.killed} }

func (s *Server) newProcessLocked(b *sandbox, c *container) (*Process, error) {
	pod := b.config.GetMetadata()
	p := &Process{
		Name:       c.config.GetMetadata().GetName(),
		UID:        pod.GetUid(),
		Pod:        pod.GetName(),
		Namespace:  pod.GetNamespace(),
		Attempt:    c.config.GetMetadata().GetAttempt(),
		Command:    s.commandLocked(c),
		Env:        map[string]string{},
		Init:       c.pidMode() == runtimeapi.NamespaceMode_CONTAINER,
		terminated: make(chan struct{}),
		killed:     make(chan struct{}),
		exited:     make(chan struct{}),
		files:      c.files,
		hostname:   b.config.GetHostname(),
	}
	for _, env := range c.config.GetEnvs() {
		p.Env[env.GetKey()] = string(env.GetValue())
	}
	p.log = &logFile{}
	if s.options.LogFiles && c.logPath != "" {
		if err := p.log.open(c.logPath); err != nil {
			return nil, status.Errorf(codes.Unknown, "cannot open the log of container %q: %v", c.id, err)
		}
	}
	return p, nil
}

// commandLocked joins command and args by the rules of images: a command replaces the image's own words altogether.
func (s *Server) commandLocked(c *container) []string {
	words := slices.Concat(c.config.GetCommand(), c.config.GetArgs())
	if len(c.config.GetCommand()) > 0 {
		return words
	}
	if i := s.imageByIDLocked(c.imageID); i != nil && len(words) == 0 {
		return i.command
	}
	return words
}

func (s *Server) programLocked(c *container) (Program, error) {
	command := s.commandLocked(c)
	keys := []string{c.config.GetMetadata().GetName(), c.config.GetImage().GetImage()}
	if i := s.imageByIDLocked(c.imageID); i != nil {
		keys = append(keys, i.given...)
	}
	if len(command) > 0 {
		keys = append(keys, command[0])
	}
	for _, key := range keys {
		if program, found := s.options.Programs[key]; found {
			return program, nil
		}
	}
	if len(command) == 0 {
		return untilTerminated, nil
	}
	if err := startable(command); err != nil {
		return nil, status.Errorf(codes.Unknown, "cannot start container %q: %v", c.id, err)
	}
	return interpret, nil
}

// untilTerminated is what images without a command run.
func untilTerminated(ctx context.Context, p *Process) int {
	select {
	case <-p.Terminated():
		return 0
	case <-ctx.Done():
		return killedCode
	}
}

var errNoCommand = errors.New("no command specified")
