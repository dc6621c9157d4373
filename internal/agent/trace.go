package agent

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/tracing"
	"nodelet.dev/nodelet/podworkers"
)

// collector is where spans go when the configuration does not say, as for the
// kubelet.
const collector = "localhost:4317"

// newTracer returns the tracer that the configuration asks for, or nil. No trace
// comes from elsewhere, so a rate of zero keeps none.
func newTracer(c config.Configuration, node, version string) *tracing.Tracer {
	if c.Tracing == nil {
		return nil
	}
	rate := c.Tracing.SamplingRatePerMillion
	if rate == nil || *rate == 0 {
		klog.InfoS("No trace is kept: tracing.samplingRatePerMillion is 0")
		return nil
	}
	return tracing.New(tracing.Options{Endpoint: cmp.Or(c.Tracing.Endpoint, collector), PerMillion: *rate, Node: node, Version: version})
}

// beginTraces connects to the collector. Dropping spans is the worst that an
// absent one does.
func (a *Agent) beginTraces(ctx context.Context) {
	if err := a.tracer.Connect(ctx); err != nil {
		klog.ErrorS(err, "Cannot send traces", "endpoint", a.cfg.Tracing.Endpoint)
	}
}

// endTraces sends what is left of the traces.
func (a *Agent) endTraces(ctx context.Context) {
	if err := a.tracer.Shutdown(ctx); err != nil {
		klog.ErrorS(err, "Cannot end the traces")
	}
}

func podAttributes(p *corev1.Pod) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.pod.name", p.Name), attribute.String("k8s.namespace.name", p.Namespace), attribute.String("k8s.pod.uid", string(p.UID)),
	}
}

func (a *Agent) traceWave(ctx context.Context, w podworkers.Wave) (in context.Context, end func(error)) {
	if a.tracer == nil {
		return ctx, func(error) {}
	}
	attributes := append(podAttributes(w.Pod), attribute.String("nodelet.phase", w.Phase.String()),
		attribute.StringSlice("nodelet.actions", texts(w.Actions)))
	return a.tracer.Start(ctx, "wave", attributes...)
}

func (a *Agent) tracePull(ctx context.Context, p *corev1.Pod, c *corev1.Container) (in context.Context, end func(error)) {
	if a.tracer == nil {
		return ctx, func(error) {}
	}
	return a.tracer.Start(ctx, "pull", append(podAttributes(p),
		attribute.String("k8s.container.name", c.Name), attribute.String("container.image.name", c.Image))...)
}

// texts returns actions as logs write them.
func texts(actions []plan.Action) []string {
	out := make([]string, 0, len(actions))
	for _, a := range actions {
		out = append(out, a.String())
	}
	return out
}

// failureOf joins what went wrong in a wave.
func failureOf(results []plan.Result) error {
	var all []error
	for _, r := range results {
		all = append(all, r.Err)
	}
	return errors.Join(all...)
}
