package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nodelet.dev/nodelet/internal/node"
)

// Machine is what the checks look at. Paths given to its functions are those of
// the machine, without Root.
type Machine struct {
	// Root is where the machine's file system begins; empty for this machine.
	Root string
	UID  int
	PID  int // our own
	// Kernel is the release, such as 6.1.0-18-amd64.
	Kernel string
	Now    time.Time
	// Synchronised reports whether something keeps the clock right.
	Synchronised func() (bool, error)
	// FileSystem tells of the file system that holds a path.
	FileSystem func(path string) (node.FileSystem, error)
	// Dial connects to a unix socket and tells which process listens; zero if that
	// cannot be told.
	Dial func(ctx context.Context, path string) (pid int, err error)
	// Runtime speaks to the runtime behind two sockets.
	Runtime func(runtime, images string) (Runtime, error)
}

// This returns the machine that the program runs on.
func This() (Machine, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Machine{}, fmt.Errorf("cannot read the release of the kernel: %w", err)
	}
	return Machine{
		UID: os.Geteuid(), PID: os.Getpid(), Kernel: unix.ByteSliceToString(name.Release[:]), Now: time.Now(),
		Synchronised: synchronised, FileSystem: node.FileSystemOf, Dial: dial, Runtime: connect,
	}, nil
}

func synchronised() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t) // without a mode it only reads
	if err != nil {
		return false, fmt.Errorf("cannot read the state of the clock: %w", err)
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, nil
}

func dial(ctx context.Context, path string) (int, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	pid := peer(conn)
	return pid, conn.Close()
}

// peer returns the process that listens at the other end of a connection.
func peer(conn net.Conn) (pid int) {
	socket, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

func (m Machine) path(path string) string {
	if m.Root == "" {
		return path
	}
	return filepath.Join(m.Root, path)
}

// text returns what a file holds, without white space around it, or nothing.
func (m Machine) text(path string) string {
	text, err := os.ReadFile(m.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (m Machine) exists(path string) bool {
	_, err := os.Stat(m.path(path))
	return err == nil
}

// init names the first process.
func (m Machine) init() string {
	if name := m.text("/proc/1/comm"); name != "" {
		return name
	}
	return "unknown"
}

// systemd reports whether the machine was booted with systemd, as sd_booted does.
func (m Machine) systemd() bool { return m.exists("/run/systemd/system") }

// process is one that runs.
type process struct {
	pid  int
	args []string
}

// command returns the arguments of a process, none if it is not there.
func (m Machine) command(pid int) []string {
	text := strings.TrimRight(m.text(fmt.Sprintf("/proc/%d/cmdline", pid)), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// processes finds those of a name, in the order of their IDs.
func (m Machine) processes(name string) []process {
	entries, err := os.ReadDir(m.path("/proc"))
	if err != nil {
		return nil
	}
	var list []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && m.text(fmt.Sprintf("/proc/%d/comm", pid)) == name {
			list = append(list, process{pid, m.command(pid)})
		}
	}
	slices.SortFunc(list, func(a, b process) int { return a.pid - b.pid })
	return list
}

// flag returns the value of a flag, given as --name value or --name=value.
func flag(args []string, names ...string) string {
	for i, arg := range args {
		for _, name := range names {
			if value, found := strings.CutPrefix(arg, name+"="); found {
				return value
			}
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// cause leaves away the operation and the path, which the message names.
func cause(err error) error {
	if e, is := errors.AsType[*os.PathError](err); is {
		return e.Err
	}
	return err
}
