package systemd

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"
)

// Watchdog feeds the manager's watchdog until ctx ends, three times per interval
// so that one lost message does no harm. It does nothing if the manager did not
// ask for it.
//
// stalled names a main loop that is stuck, and for how long it has been; an empty
// name means that all are alive. While one is stuck the watchdog is not fed, so
// that the manager ends the daemon and starts another; the log then has the name.
// stalled must not wait for anything.
func (n *Notifier) Watchdog(ctx context.Context, stalled func() (loop string, since time.Duration)) {
	if n.watchdog <= 0 {
		return
	}
	tick := time.NewTicker(max(n.watchdog/3, time.Millisecond))
	defer tick.Stop()
	told := ""
	for {
		loop, since := stalled()
		switch {
		case loop == "" && told != "":
			klog.InfoS("A main loop goes on; the watchdog is fed again", "loop", told)
			fallthrough
		case loop == "":
			n.send(daemon.SdNotifyWatchdog)
		case loop != told:
			klog.ErrorS(nil, "A main loop is stuck; the watchdog is no longer fed, so the service manager is going to end this process",
				"loop", loop, "since", since.Round(time.Second), "watchdog", n.watchdog)
		}
		told = loop
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
