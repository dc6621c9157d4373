// Command fakecri serves a CRI runtime in memory on a unix socket: for scale tests of an agent, and for the CI of
// people whose tools speak CRI. No container ever runs; see package runtime/fakecri for what its programs can do.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakecri:", err)
		os.Exit(1)
	}
}
