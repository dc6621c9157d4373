package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
)

// Bounds of one attempt to send spans, and of all that is sent at the end: an agent
// that leaves does not wait long for a collector that is not there.
const (
	exportTimeout = 5 * time.Second
	leaveTimeout  = 2 * time.Second
)

// million is what rates are a part of.
const million = 1_000_000

// Options say where spans go and how many.
type Options struct {
	// Endpoint is the host:port of the collector. The connection is not encrypted.
	Endpoint string
	// PerMillion is how many of a million traces are kept.
	PerMillion int32
	// Node and Version describe the agent in each span's resource.
	Node, Version string
}

// Tracer makes spans. Its methods are safe for concurrent use, and do nothing on
// a nil Tracer.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	connect  func(context.Context) error
}

// Connect makes the connection, without waiting for the collector. It comes
// before any span.
func (t *Tracer) Connect(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.connect(ctx)
}

// New returns a tracer that sends to a collector once it is connected.
func New(o Options) *Tracer {
	exporter := otlptracegrpc.NewUnstarted(otlptracegrpc.WithEndpoint(o.Endpoint), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithTimeout(exportTimeout))
	t := with(exporter, o)
	t.connect = exporter.Start
	return t
}

func with(exporter sdktrace.SpanExporter, o Options) *Tracer {
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter, endpoint: o.Endpoint}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.PerMillion)/million))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "nodelet"), attribute.String("service.version", o.Version), attribute.String("k8s.node.name", o.Node),
		)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("nodelet.dev/nodelet")}
}

// Shutdown sends what is left and ends the tracer.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Start begins a span. Its context is for what belongs to it; how it ended is told
// to end.
func (t *Tracer) Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (in context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	in, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return in, ending(span)
}

// Call begins a span of a call of the runtime, if the call belongs to a span. The
// runtime learns of it, so that its own spans join.
func (t *Tracer) Call(ctx context.Context, method string) (in context.Context, end func(error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(error) {}
	}
	service := "runtime.v1.RuntimeService"
	if method == "PullImage" || method == "ImageStatus" {
		service = "runtime.v1.ImageService"
	}
	in, span := t.tracer.Start(ctx, service+"/"+method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
	))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(in, carrier)
	var pairs []string
	for key, value := range carrier {
		pairs = append(pairs, key, value)
	}
	return metadata.AppendToOutgoingContext(in, pairs...), ending(span)
}

func ending(span trace.Span) func(error) {
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// loggedExporter logs that spans were lost. The library would tell a handler that
// the whole process shares.
type loggedExporter struct {
	sdktrace.SpanExporter
	endpoint string
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		klog.ErrorS(err, "Cannot send spans to the collector; they are lost", "endpoint", e.endpoint)
	}
	return nil
}
