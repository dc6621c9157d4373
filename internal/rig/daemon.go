package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const terminateWait = 15 * time.Second

// daemon is one run of containerd. A nil daemon is one that has ended.
type daemon struct {
	pid        int
	startTicks uint64
	// ended is closed when the process has been reaped; nil when another process is the parent.
	ended chan struct{}
}

// startDaemon does not tie the process to a context: a demo's daemon outlives the command that started it.
func startDaemon(b binaries, l layout) (*daemon, error) {
	log, err := os.OpenFile(l.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open containerd's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	process, err := os.StartProcess(b.Containerd, []string{b.Containerd, "--config", l.config()}, &os.ProcAttr{
		Dir:   string(l),
		Env:   pathEnv(b),
		Files: []*os.File{nil, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", b.Containerd, err)
	}
	d := &daemon{pid: process.Pid, startTicks: startTicks(process.Pid), ended: make(chan struct{})}
	// The goroutine ends with the process; every method that ends the process waits for the channel.
	go func() {
		defer close(d.ended)
		// Why the daemon ended is in its log; that it ended is all that matters here
		_, _ = process.Wait()
	}()
	return d, nil
}

// findDaemon returns nil if the pid is gone or belongs to another process by now.
func findDaemon(pid int, ticks uint64) *daemon {
	if ticks == 0 || startTicks(pid) != ticks {
		return nil
	}
	return &daemon{pid: pid, startTicks: ticks}
}

func (d *daemon) running() bool {
	if d == nil {
		return false
	}
	if d.ended == nil {
		return startTicks(d.pid) == d.startTicks
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

func (d *daemon) terminate(ctx context.Context) error {
	if !d.running() {
		return nil
	}
	if err := d.signalAndWait(ctx, syscall.SIGTERM, terminateWait); err == nil {
		return nil
	}
	return d.kill(ctx)
}

func (d *daemon) kill(ctx context.Context) error {
	if !d.running() {
		return nil
	}
	return d.signalAndWait(ctx, syscall.SIGKILL, terminateWait)
}

func (d *daemon) signalAndWait(ctx context.Context, signal syscall.Signal, wait time.Duration) error {
	if err := syscall.Kill(d.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot send %v to containerd, pid %d: %w", signal, d.pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return poll(ctx, func() error {
		if d.running() {
			return fmt.Errorf("cannot end containerd, pid %d: it still runs after %v", d.pid, signal)
		}
		return nil
	})
}

// startTicks is field 22 of /proc/PID/stat; zero if there is no such process or it is a zombie.
func startTicks(pid int) uint64 {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The command's name, in parentheses, may hold blanks and parentheses itself.
	_, rest, found := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const startField = 22 - 3
	if !found || len(fields) <= startField || fields[0] == "Z" {
		return 0
	}
	ticks, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
