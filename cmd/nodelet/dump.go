package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/klog/v2"
)

// dumper writes the state of the agent when the process is told to.
type dumper struct {
	asked chan os.Signal
	// write returns the path of what it wrote.
	write func(context.Context) (path string, err error)
}

// dumpRequests returns the channel of SIGUSR1, which no longer ends the process,
// and what gives that up.
func dumpRequests() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 1) // several mean one dump
	signal.Notify(signals, syscall.SIGUSR1)
	return signals, func() { signal.Stop(signals) }
}

// beside serves requests from the moment that the daemon is ready until it has
// ended.
func (d dumper) beside(ctx context.Context, daemon func(ready func()) error) error {
	ctx, end := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer end()
	return daemon(func() { serving.Go(func() { d.serve(ctx) }) })
}

func (d dumper) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.asked:
		}
		if path, err := d.write(ctx); err != nil {
			klog.ErrorS(err, "The state was asked for by SIGUSR1")
		} else {
			klog.InfoS("The state was written, as asked for by SIGUSR1", "path", path)
		}
	}
}
