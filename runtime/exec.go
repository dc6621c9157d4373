package runtime

import (
	"context"
	"errors"
	"time"

	cri "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"nodelet.dev/nodelet/internal/pod"
)

// Bounds of a command whose time is over.
const (
	// execSlack is what the runtime gets to start a command and to end it, before
	// we do what it does not.
	execSlack = 2 * time.Second
	// execEarly is how long before its time is over a command is looked for first,
	// and execLook how often from then on.
	execEarly = 500 * time.Millisecond
	execLook  = 200 * time.Millisecond
	// execAlive is how soon a runtime that is there answers.
	execAlive = 5 * time.Second
)

// execAnswer is what the runtime says of a command.
type execAnswer struct {
	output string
	code   int
	err    error
}

// ExecSync runs a command in a container and waits for its end, or for the
// timeout, in whole seconds. The output is both streams, cut at limit bytes.
//
// A command that ran too long is an error of pod.ClassDeadline, and no process
// that it started is left: the runtimes end only its first one, and then wait for
// whoever still holds its output. One that could not be run because the runtime
// does not answer is an error of pod.ClassUnavailable.
func (c *Client) ExecSync(
	ctx context.Context, containerID string, command []string, timeout time.Duration, limit int,
) (output string, exitCode int, err error) {
	began := time.Now()
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan execAnswer, 1)
	go func() { answers <- c.exec(call, containerID, command, timeout, limit) }()
	session := execSession{containerID: containerID, command: command, began: began, leaders: map[int]time.Duration{}}
	timer := time.NewTimer(timeout - min(timeout/2, execEarly))
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if pod.ClassOf(a.err) == pod.ClassDeadline {
				c.endSession(&session)
			}
			return a.output, a.code, a.err
		case <-timer.C:
		}
		if time.Since(began) >= timeout+execSlack {
			return c.overdue(ctx, &session, answers, cancel, timeout)
		}
		// What the command started can be told from the rest only while its first
		// process runs, so that is looked for before the runtime ends it.
		c.findSession(ctx, &session)
		timer.Reset(execLook)
	}
}

// overdue ends a command that the runtime has not ended, and finds out whether
// that was the command's fault or the runtime's.
func (c *Client) overdue(
	ctx context.Context, s *execSession, answers <-chan execAnswer, cancel context.CancelFunc, timeout time.Duration,
) (output string, exitCode int, err error) {
	c.breakSession(s)
	timer := time.NewTimer(execSlack)
	defer timer.Stop()
	late := pod.Errorf(pod.ClassDeadline, "", "cannot wait longer for %q in container %s: it timed out after %v", s.command, s.containerID, timeout)
	var a execAnswer
	select {
	case a = <-answers:
	case <-timer.C:
		cancel()
		a = <-answers
	}
	if class := pod.ClassOf(a.err); class == pod.ClassUnavailable || class == pod.ClassNotFound {
		return "", 0, a.err
	}
	// Whose time was over, ours or the runtime's, does not show.
	alive, done := context.WithTimeout(ctx, execAlive)
	defer done()
	if _, err := c.containerStatus(alive, s.containerID); err != nil && !isNotFound(err) {
		return "", 0, pod.Errorf(pod.ClassUnavailable, "", "cannot run %q in container %s: the container runtime does not answer: %w", s.command, s.containerID, err)
	}
	return "", 0, late
}

// exec is the call itself.
func (c *Client) exec(ctx context.Context, id string, command []string, timeout time.Duration, limit int) execAnswer {
	var stdout, stderr []byte
	err := c.call(ctx, "ExecSync", func(ctx context.Context, conn *connection) (err error) {
		stdout, stderr, err = conn.runtime.ExecSync(ctx, id, command, max(timeout.Truncate(time.Second), time.Second))
		return err
	})
	out := execAnswer{output: both(stdout, stderr, limit)}
	if exit, ok := errors.AsType[utilexec.CodeExitError](err); ok {
		out.code = exit.Code
		return out
	}
	switch {
	case errors.Is(err, cri.ErrCommandTimedOut):
		out.err = pod.Errorf(pod.ClassDeadline, "", "cannot wait longer for %q in container %s: it timed out after %v", command, id, timeout)
	case err != nil:
		out.err = failed(err, "", "run %q in container %s", command, id)
	}
	return out
}

// both joins what a command said, cut at limit bytes.
func both(stdout, stderr []byte, limit int) string {
	n := min(len(stdout), limit)
	out := make([]byte, 0, min(len(stdout)+len(stderr), limit))
	out = append(out, stdout[:n]...)
	return string(append(out, stderr[:min(len(stderr), limit-n)]...))
}
