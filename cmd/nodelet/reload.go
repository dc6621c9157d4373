package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/logs"
)

// reloader loads the configuration again when the process is told to.
type reloader struct {
	hangups chan os.Signal
	// load loads from the same flags and environment as at the start.
	load func() (config.Loaded, error)
	// apply takes the outcome, good or bad.
	apply func(config.Loaded, error)
	// begins and ends frame each reload.
	begins, ends func()
}

// hangups returns the channel of SIGHUP, which no longer ends the process, and
// what gives that up.
func hangups() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 1) // several mean one reload
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// beside serves reloads from the moment that the daemon is ready until it has
// ended.
func (r reloader) beside(ctx context.Context, daemon func(ready func()) error) error {
	ctx, end := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer end()
	return daemon(func() { serving.Go(func() { r.serve(ctx) }) })
}

func (r reloader) serve(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hangups:
		}
		r.begins()
		r.apply(r.load())
		r.ends()
	}
}

// loadAgain loads the configuration as loadConfig does, and lets the log follow.
func loadAgain(cmd *cobra.Command) (config.Loaded, error) {
	l, err := loadConfig(cmd)
	if err == nil {
		err = logs.SetVerbosity(int(l.Config.Logging.Verbosity))
	}
	return l, err
}
