package agent

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
)

// reloadView is what the last reload came to. It is immutable.
type reloadView struct {
	// problem is why the last configuration was not taken, empty when it was.
	problem string
	// restart are the fields that hold what they held when the agent was started.
	restart []string
}

// Reload takes the outcome of loading the configuration again while Run runs. Of
// a configuration that could be loaded the fields that can change live are
// applied, and those that take a restart are named. One that could not be loaded
// changes nothing. The sources look now in any case.
func (a *Agent) Reload(l config.Loaded, err error) {
	if err == nil {
		err = a.applyLive(l.Config)
	}
	a.metrics.Reloaded(err != nil)
	if err != nil {
		a.refuseReload(err)
	}
	live := *a.live.Load()
	for _, s := range a.sources {
		if s.reload != nil {
			s.reload(live)
		}
	}
}

// refuseReload keeps the configuration that is in force and says why.
func (a *Agent) refuseReload(err error) {
	faults, several := errors.AsType[config.Errors](err)
	if several {
		for _, fault := range faults {
			klog.ErrorS(fault, "Cannot use the configuration; the old one stays in force")
		}
	} else {
		klog.ErrorS(err, "Cannot use the configuration; the old one stays in force")
	}
	a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "InvalidConfiguration", err.Error()+"; the old one stays in force")
	view := *a.reload.Load()
	view.problem = err.Error()
	a.reload.Store(&view)
}

// applyLive takes over what can change in a running agent.
func (a *Agent) applyLive(next config.Configuration) error {
	before := *a.live.Load()
	live := config.Applied(a.cfg, next)
	applied, err := config.Changes(before, live)
	if err != nil {
		return err
	}
	waiting, err := config.Changes(live, next)
	if err != nil {
		return err
	}
	a.live.Store(&live)
	options := runtimeOptions(live, a.facts)
	a.runtime.SetPullRate(options.PullQPS, options.PullBurst)
	select {
	case a.reloaded <- struct{}{}:
	default: // syncLoop is told already
	}
	for _, c := range applied {
		klog.InfoS("The configuration changed", "field", c.Field, "old", c.Old, "new", c.New)
	}
	view := &reloadView{}
	for _, c := range waiting {
		klog.InfoS("The configuration changed, and a restart of nodelet applies it", "field", c.Field, "old", c.Old, "new", c.New)
		view.restart = append(view.restart, c.Field)
	}
	if len(view.restart) > 0 {
		a.events.Add(a.nodeReference(), corev1.EventTypeWarning, "ConfigurationNeedsRestart",
			"A restart of nodelet applies what changed in "+strings.Join(view.restart, ", "))
	}
	a.reload.Store(view)
	klog.InfoS("The configuration was loaded again", "applied", len(applied), "needRestart", len(view.restart))
	return nil
}
