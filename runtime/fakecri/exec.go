package fakecri

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync implements CRI. A command that is not over when its timeout is ends with DeadlineExceeded.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	s.mu.Lock()
	c, err := s.findContainerLocked(r.GetContainerId())
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	p := c.process
	name := c.config.GetMetadata().GetName()
	state := c.state
	s.mu.Unlock()
	if p == nil {
		return nil, status.Errorf(codes.Unknown, "cannot exec in container %q: it is in state %s", r.GetContainerId(), state)
	}
	if r.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.GetTimeout())*time.Second)
		defer cancel()
	}
	if s.options.Exec != nil {
		if result, handled := s.options.Exec(ctx, name, slices.Clone(r.GetCmd())); handled {
			return execAnswer(ctx, result)
		}
	}
	if len(r.GetCmd()) == 0 {
		return nil, status.Errorf(codes.Unknown, "cannot exec in container %q: %v", r.GetContainerId(), errNoCommand)
	}
	if err := startable(r.GetCmd()); err != nil {
		return nil, status.Errorf(codes.Unknown, "cannot exec in container %q: %v", r.GetContainerId(), err)
	}
	return execAnswer(ctx, runExec(ctx, p, r.GetCmd()))
}

func execAnswer(ctx context.Context, result ExecResult) (*runtimeapi.ExecSyncResponse, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(result.Stdout), Stderr: []byte(result.Stderr), ExitCode: result.ExitCode}, nil
}

// runExec ends with the command, with the context, or with the container.
func runExec(ctx context.Context, p *Process, command []string) ExecResult {
	var stdout, stderr strings.Builder
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sh := &shell{
		process: p,
		ended:   ctx.Done(),
		term:    nil,
		stdout:  func(text string) { stdout.WriteString(text) },
		stderr:  func(text string) { stderr.WriteString(text) },
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-p.killed:
			cancel()
		case <-ctx.Done():
		}
	}()
	code := sh.run(command)
	if sh.exiting {
		code = sh.code
	}
	cancel()
	<-watched
	return ExecResult{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: int32(code & 0xff)}
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
