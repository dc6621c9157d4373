package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/server"
)

// loopStale is how long syncLoop may take for one round (C-11).
const loopStale = 5 * time.Minute

// callTimeout bounds what a health check asks of the runtime.
const callTimeout = 5 * time.Second

// Live implements server.Agent: the process is able to work.
func (a *Agent) Live() error {
	if since := a.sinceRound(); since > loopStale {
		return fmt.Errorf("syncLoop has been in one round for %s", since.Round(time.Second))
	}
	return nil
}

// Checks implements server.Agent: what must hold for the node to be ready, each
// by name.
func (a *Agent) Checks(ctx context.Context) []server.Check {
	runtimeErr, networkErr := a.checkRuntime(ctx)
	return []server.Check{
		{Name: "ping"},
		{Name: "syncloop", Err: a.Live()},
		{Name: "state", Err: a.checkState()},
		{Name: "runtime", Err: runtimeErr},
		{Name: "network", Err: networkErr},
		{Name: "pleg", Err: a.pleg.Check(time.Now())},
		{Name: "sources", Err: a.checkSources()},
		{Name: "pods", Err: a.checkPods()},
	}
}

func (a *Agent) checkRuntime(ctx context.Context) (runtimeErr, networkErr error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := a.runtime.Status(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("waiting for the container runtime at %s: %w", a.cfg.ContainerRuntimeEndpoint, err), errors.New("unknown while the runtime does not answer")
	case !st.RuntimeReady:
		runtimeErr = fmt.Errorf("the container runtime says it is not ready: %s", st.RuntimeMessage)
	}
	if !st.NetworkReady {
		networkErr = fmt.Errorf("the container runtime says its network is not ready: %s", st.NetworkMessage)
	}
	return runtimeErr, networkErr
}

func (a *Agent) checkSources() error {
	v := a.known.Load()
	var missing []string
	for _, s := range a.sources {
		if _, ok := v.delivered[s.name]; ok {
			continue
		}
		why := []string{fmt.Sprintf("source %s (%s) has not delivered yet", s.name, s.origin)}
		for _, p := range s.problems() {
			why = append(why, p.Message)
		}
		missing = append(missing, strings.Join(why, ": "))
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	return nil
}

// checkPods names the pod whose calls to the runtime hang: that is a fault of its
// own, which holds up no other pod (INV-23).
func (a *Agent) checkPods() error {
	h := a.pleg.Health()
	if h.Slow != "" && time.Since(h.SlowSince) > a.cfg.RuntimeRequestTimeout.Duration/2 {
		return fmt.Errorf("the inspection of pod %s has been running for %s", h.Slow, time.Since(h.SlowSince).Round(time.Second))
	}
	return nil
}

// Pods implements server.Agent.
func (a *Agent) Pods() *corev1.PodList { return a.board.podList() }

// EventsSince implements server.Agent.
func (a *Agent) EventsSince(revision uint64) (changed []corev1.Event, newest uint64, next <-chan struct{}) {
	return a.events.Since(revision)
}

// Status implements server.Agent.
func (a *Agent) Status(ctx context.Context) server.Status {
	out := server.Status{Version: a.version, Node: a.facts.Name, Started: a.began, RootDir: a.cfg.RootDirectory, Sources: a.sourceStates()}
	reload := a.reload.Load()
	out.ConfigProblem, out.NeedsRestart = reload.problem, reload.restart
	out.Runtime.Endpoint = a.cfg.ContainerRuntimeEndpoint
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := a.runtime.Status(ctx)
	if err != nil {
		out.Runtime.Problem = err.Error()
		return out
	}
	out.Runtime.Name, out.Runtime.Version, out.Runtime.Events = st.Name, st.Version, st.Events
	switch {
	case !st.RuntimeReady:
		out.Runtime.Problem = "not ready: " + st.RuntimeMessage
	case !st.NetworkReady:
		out.Runtime.Problem = "network not ready: " + st.NetworkMessage
	}
	return out
}
