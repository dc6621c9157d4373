package agent

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/metrics"
	"nodelet.dev/nodelet/internal/server"
)

// refused stands in for an agent that must not touch the pods, because it does
// not understand the state that they were left in. It only says why.
type refused struct {
	cfg     config.Configuration
	version string
	began   time.Time
	why     error
	metrics *metrics.Metrics
}

// Refuse answers on the agent's socket why there is no agent, until ctx ends.
// The pods run on without one, which beats a program that starts, fails and is
// started again for ever. ready is called once the socket answers.
func Refuse(ctx context.Context, cfg config.Configuration, version string, why error, ready func()) error {
	listener, err := server.Listen(filepath.Join(cfg.RunDirectory, SocketName), SocketGroup)
	if err != nil {
		return err
	}
	klog.ErrorS(why, "The state cannot be used; the pods are left alone")
	ready()
	r := refused{
		cfg: cfg, version: version, began: time.Now(), why: why,
		metrics: metrics.New(metrics.Options{Node: cfg.NodeName, Version: version}),
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return server.Serve(ctx, listener, r) })
	if address := cfg.MetricsBindAddress; address != "" {
		parts.Go(func() error { return server.ServeMetrics(ctx, address, r, logMetrics) })
	}
	return parts.Wait()
}

func logMetrics(err error) {
	if err != nil {
		klog.ErrorS(err, "The metrics are on the socket only")
		return
	}
	klog.InfoS("The metrics are served on their address")
}

// Metrics implements server.Agent: those of the process.
func (r refused) Metrics() http.Handler { return r.metrics.Handler() }

// Debug implements server.Agent.
func (r refused) Debug() server.Debug {
	d := server.Debug{Profiling: r.cfg.EnableProfilingHandler}
	if r.cfg.EnableStateDump {
		d.State = func(ctx context.Context) any {
			return stateDump{TakenAt: time.Now(), Agent: r.Status(ctx), Config: shownConfig(r.cfg)}
		}
	}
	return d
}

// Live implements server.Agent: the process itself works.
func (refused) Live() error { return nil }

// Checks implements server.Agent.
func (r refused) Checks(context.Context) []server.Check {
	return []server.Check{{Name: "ping"}, {Name: "state", Err: r.why}}
}

// Pods implements server.Agent: what runs is not known.
func (refused) Pods() *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
}

// EventsSince implements server.Agent: nothing happens.
func (refused) EventsSince(uint64) (changed []corev1.Event, newest uint64, next <-chan struct{}) {
	return nil, 0, nil
}

// Status implements server.Agent.
func (r refused) Status(context.Context) server.Status {
	return server.Status{
		Version: r.version, Node: r.cfg.NodeName, Started: r.began, RootDir: r.cfg.RootDirectory, Problem: r.why.Error(),
		Runtime: server.RuntimeState{Endpoint: r.cfg.ContainerRuntimeEndpoint, Problem: "not used"}, Sources: []server.SourceState{},
	}
}
