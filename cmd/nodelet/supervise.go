package main

import (
	"context"
	"sync"
	"time"

	"nodelet.dev/nodelet/internal/agent"
	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/systemd"
)

// statusPeriod is how often the line for the service manager is made anew.
const statusPeriod = 2 * time.Second

// supervised is what the service manager is told about.
type supervised struct {
	// stalled names a main loop that is stuck.
	stalled func() (loop string, since time.Duration)
	// line says what goes on; it may take some seconds.
	line func(context.Context) string
}

// supervise runs the daemon, which calls ready once, and keeps the service
// manager informed until it has ended. The watchdog is fed to the very end: to
// leave takes time too, and has its own bound in the manager.
func supervise(ctx context.Context, n *systemd.Notifier, s supervised, run func(ready func()) error) error {
	life, end := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end()
	return run(func() {
		n.Ready()
		parts.Go(func() { n.Watchdog(life, s.stalled) })
		parts.Go(func() { narrate(ctx, life, n, s.line) })
	})
}

// narrate tells what goes on until the daemon leaves, and then that it does.
func narrate(ctx, life context.Context, n *systemd.Notifier, line func(context.Context) string) {
	tick := time.NewTicker(statusPeriod)
	defer tick.Stop()
	for {
		// A line made while the daemon leaves may say that the runtime is absent,
		// since nobody waits for its answer any more.
		if text := line(ctx); ctx.Err() == nil {
			n.Status(text)
		}
		select {
		case <-ctx.Done():
			n.Stopping()
			n.Status("leaving; the pods run on")
			return
		case <-life.Done():
			return
		case <-tick.C:
		}
	}
}

// refuse stands in for an agent that cannot understand its state. The service
// manager sees a daemon that is up and says why it does nothing: one that ended
// would be started again for ever.
func refuse(ctx context.Context, n *systemd.Notifier, c config.Configuration, why error) error {
	s := supervised{
		stalled: func() (string, time.Duration) { return "", 0 }, // it has no loop
		line:    func(context.Context) string { return "pods are left alone: " + why.Error() },
	}
	return supervise(ctx, n, s, func(ready func()) error { return agent.Refuse(ctx, c, shortVersion(), why, ready) })
}
