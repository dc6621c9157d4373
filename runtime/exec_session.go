package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// execSession is a command in a container and all that it started. The first
// process of a command leads a session of its own, to which its children belong
// unless they leave it, also when their parents have ended.
type execSession struct {
	containerID string
	command     []string
	began       time.Time

	first int // the container's own process; zero when it is not known
	// leaders are the processes that may be the command's first, by ID, and when
	// they began.
	leaders map[int]time.Duration
}

// unseen stands for the process of a container that cannot be seen from here.
const unseen = -1

// clockTick is the unit of the start times in /proc; it is the same everywhere.
const clockTick = 10 * time.Millisecond

// endRounds is how often a session is looked through: each round ends all that
// there are, and those that start something meanwhile are found by the next.
const endRounds = 5

// findSession looks for the first process of a command that runs. CRI does not
// tell which it is: it is a child of the shim in the container's cgroup, began
// after the call did, and has the words of the command. Several may fit, when one
// container is asked the same by several probes; then what has ended is what
// counts. Where the processes of the runtime cannot be seen, none is found, and
// the runtime's own means have to do.
func (c *Client) findSession(ctx context.Context, s *execSession) {
	if s.first == 0 {
		s.first = c.firstProcess(ctx, s.containerID)
	}
	if s.first == 0 {
		s.first = unseen
	}
	if s.first == unseen {
		return
	}
	all := processes()
	at := slices.IndexFunc(all, func(p process) bool { return p.pid == s.first })
	if at < 0 {
		return
	}
	for _, p := range s.candidates(all, all[at].parent) {
		s.leaders[p.pid] = p.started
	}
}

// firstProcess returns the process ID of a container, or zero when it cannot be
// seen.
func (c *Client) firstProcess(ctx context.Context, id string) int {
	alive, done := context.WithTimeout(ctx, execAlive)
	defer done()
	var response *runtimeapi.ContainerStatusResponse
	err := c.call(alive, "ContainerStatus", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.runtime.ContainerStatus(ctx, id, true)
		return err
	})
	if err != nil {
		return 0 // it is gone, or the runtime is
	}
	pid, err := pidOf(response.GetInfo())
	if err != nil || !belongs(pid, id) {
		return 0
	}
	return pid
}

// candidates returns the processes that may be the command's first: those that
// have its words or, where there is none, those that have others, since a script
// shows its interpreter's.
func (s *execSession) candidates(all []process, shim int) []process {
	began := sinceBoot() - time.Since(s.began) - clockTick
	words := strings.Join(s.command, "\x00") + "\x00"
	var same, other []process
	for _, p := range all {
		if p.parent != shim || p.pid == s.first || p.session != p.pid || p.zombie || p.started < began || !belongs(p.pid, s.containerID) {
			continue
		}
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && string(text) == words {
			same = append(same, p)
		} else {
			other = append(other, p)
		}
	}
	if len(same) > 0 {
		return same
	}
	return other
}

// endSession kills what is left of a command that the runtime has ended: what
// belongs to the session of a candidate that runs no more.
func (c *Client) endSession(s *execSession) {
	for range endRounds {
		all := processes()
		ended := maps.Clone(s.leaders)
		for _, p := range all {
			if !p.zombie {
				delete(ended, p.pid)
			}
		}
		if c.killSessions(s, all, ended) == 0 {
			return
		}
	}
}

// breakSession kills a command that the runtime does not end. Of several
// candidates it is the oldest, since this one's time is over.
func (c *Client) breakSession(s *execSession) {
	c.endSession(s)
	all := processes()
	oldest := map[int]time.Duration{}
	for _, p := range all {
		if started, ok := s.leaders[p.pid]; !ok || started != p.started || p.zombie {
			continue
		}
		if len(oldest) == 0 || p.started < slices.Collect(maps.Values(oldest))[0] {
			oldest = map[int]time.Duration{p.pid: p.started}
		}
	}
	c.killSessions(s, all, oldest)
}

// killSessions kills the processes of some sessions and returns how many.
func (c *Client) killSessions(s *execSession, all []process, leaders map[int]time.Duration) int {
	killed := 0
	for _, p := range all {
		started, ok := leaders[p.session]
		if !ok || p.zombie || p.started < started || !belongs(p.pid, s.containerID) {
			continue
		}
		killed++
		if err := c.kill(p.pid, s.containerID); err != nil {
			klog.V(2).InfoS("Cannot end a process of a command whose time is over", "containerID", s.containerID, "pid", p.pid, "err", err)
		}
	}
	return killed
}

// belongs reports whether a process is in the cgroup of a container.
func belongs(pid int, containerID string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(text, []byte(containerID))
}

// process is what /proc tells of one.
type process struct {
	pid, parent, session int
	started              time.Duration // since boot
	zombie               bool
}

// sinceBoot returns the time that start times of processes count from.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // then every process counts as new
	}
	return time.Duration(ts.Nano())
}

// processes lists all that can be seen.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var list []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		if p, err := parseStat(string(text)); err == nil {
			p.pid = pid
			list = append(list, p)
		}
	}
	return list
}

// parseStat reads the text of /proc/PID/stat. The name of the program is in
// parentheses and may hold anything.
func parseStat(text string) (process, error) {
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	const state, parent, session, started = 0, 1, 3, 19
	if end < 0 || len(fields) <= started {
		return process{}, errors.New("cannot read the status of a process: it is not in the known form")
	}
	p := process{zombie: fields[state] == "Z"}
	var failure error
	number := func(at int) int {
		n, err := strconv.Atoi(fields[at])
		failure = errors.Join(failure, err)
		return n
	}
	p.parent, p.session, p.started = number(parent), number(session), time.Duration(number(started))*clockTick
	return p, failure
}
