package systemd

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Notifier speaks to the service manager that started the daemon. It is safe for
// concurrent use. The socket is the one that NOTIFY_SOCKET names, in a directory
// or abstract (@name); without one every method does nothing.
type Notifier struct {
	watchdog time.Duration

	mu     sync.Mutex // guards the fields below for a few lines at a time
	status string     // the last one that was told
	failed bool       // the newest message did not get through
}

// New reads WATCHDOG_USEC and WATCHDOG_PID. It fails if the manager asks for a
// watchdog in words that cannot be understood: a daemon that went on would be
// killed for its silence.
func New() (*Notifier, error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("cannot read the watchdog interval from WATCHDOG_USEC and WATCHDOG_PID, which the service manager sets: %w", err)
	}
	return &Notifier{watchdog: interval}, nil
}

// Ready says that the daemon has started, or that it has reloaded.
func (n *Notifier) Ready() { n.send(daemon.SdNotifyReady) }

// Reloading says that the configuration is being read again; Ready ends that.
// The time lets a manager that waits for the reload (Type=notify-reload) tell
// this reload from an older one; others ignore it.
func (n *Notifier) Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		klog.ErrorS(err, "Cannot read the monotonic clock; the service manager is not told of the reload")
		return
	}
	n.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)))
}

// Stopping says that the daemon is on its way out.
func (n *Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Status says in one line what the daemon is doing. A text that was told already
// is not told again.
func (n *Notifier) Status(text string) {
	// The protocol knows no quoting: a second line would be another message.
	text = strings.Join(strings.Fields(text), " ")
	n.mu.Lock()
	same := n.status == text
	n.status = text
	n.mu.Unlock()
	if !same {
		n.send("STATUS=" + text)
	}
}

// send tells the manager something. What does not get through is logged once
// until something does: the daemon works just as well without being heard.
func (n *Notifier) send(state string) {
	_, err := daemon.SdNotify(false, state)
	n.mu.Lock()
	first := err != nil && !n.failed
	n.failed = err != nil
	n.mu.Unlock()
	if first {
		klog.ErrorS(err, "Cannot reach the service manager; it may take this daemon for dead", "message", state)
	}
}
