// Command nodelet is a node agent: it runs Kubernetes Pods on one machine
// through a CRI runtime.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes, as sysexits.h has them.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 69 // a one-shot command found no agent
	exitTemporary   = 75 // another instance holds the root directory
	exitConfig      = 78 // the configuration does not allow to start
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "nodelet:", err)
	code := exitFailure
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	}
	os.Exit(code)
}

// exitError is an error that decides how the program exits.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }
