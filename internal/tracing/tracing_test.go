package tracing

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// TestShape: a span per thing that is done, one per call below it, and none for a
// call that belongs to nothing.
func TestShape(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tr := with(exporter, Options{PerMillion: million, Node: "edge", Version: "v1"})
	loose, end := tr.Call(t.Context(), "ListContainers")
	require.Equal(t, t.Context(), loose)
	end(nil)
	in, endWave := tr.Start(t.Context(), "wave", attribute.String("k8s.pod.name", "web"))
	call, endCall := tr.Call(in, "StartContainer")
	sent, ok := metadata.FromOutgoingContext(call)
	require.True(t, ok)
	endCall(errors.New("no such container"))
	_, endPull := tr.Call(in, "PullImage")
	endPull(nil)
	endWave(nil)
	require.NoError(t, tr.provider.ForceFlush(t.Context()))
	spans := exporter.GetSpans()
	require.Len(t, spans, 3)
	start, pull, wave := spans[0], spans[1], spans[2]
	require.Equal(t, "wave", wave.Name)
	require.False(t, wave.Parent.IsValid())
	require.Contains(t, wave.Attributes, attribute.String("k8s.pod.name", "web"))
	require.Contains(t, wave.Resource.Attributes(), attribute.String("k8s.node.name", "edge"))
	require.Contains(t, wave.Resource.Attributes(), attribute.String("service.name", "nodelet"))
	require.Equal(t, codes.Unset, wave.Status.Code)
	require.Equal(t, "runtime.v1.RuntimeService/StartContainer", start.Name)
	require.Equal(t, wave.SpanContext.SpanID(), start.Parent.SpanID())
	require.Equal(t, wave.SpanContext.TraceID(), start.SpanContext.TraceID())
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no such container"}, start.Status)
	require.Equal(t, []string{"00-" + start.SpanContext.TraceID().String() + "-" + start.SpanContext.SpanID().String() + "-01"}, sent.Get("traceparent"))
	require.Equal(t, "runtime.v1.ImageService/PullImage", pull.Name)
	require.NoError(t, tr.Shutdown(t.Context()))
}

// TestNothing: without a tracer nothing happens, and nothing is allocated.
func TestNothing(t *testing.T) {
	var tr *Tracer
	require.NoError(t, tr.Connect(t.Context()))
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, end := tr.Start(ctx, "wave")
		end(nil)
		_, end = tr.Call(ctx, "Status")
		end(nil)
	}))
	require.NoError(t, tr.Shutdown(t.Context()))
}

// TestRate: a rate keeps about that many traces, whole ones only.
func TestRate(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tr := with(exporter, Options{PerMillion: 500_000})
	for range 400 {
		in, end := tr.Start(t.Context(), "wave")
		_, endCall := tr.Call(in, "Status")
		endCall(nil)
		end(nil)
	}
	require.NoError(t, tr.provider.ForceFlush(t.Context()))
	spans := exporter.GetSpans()
	require.Zero(t, len(spans)%2)
	require.InDelta(t, 200, len(spans)/2, 80)
	require.NoError(t, tr.Shutdown(t.Context()))
}

// sink is an OTLP collector.
type sink struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex // guards names
	names []string
}

func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.names = append(s.names, span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// TestOTLP: spans reach a collector, the last of them at the end.
func TestOTLP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, s := grpc.NewServer(), &sink{}
	collector.RegisterTraceServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	tr := New(Options{Endpoint: l.Addr().String(), PerMillion: million})
	require.NoError(t, tr.Connect(t.Context()))
	_, end := tr.Start(t.Context(), "wave")
	end(nil)
	require.NoError(t, tr.Shutdown(t.Context()))
	s.mu.Lock()
	require.Equal(t, []string{"wave"}, s.names)
	s.mu.Unlock()
	server.Stop()
	require.NoError(t, <-ended)
}

// TestNoCollector: a collector that is not there holds up nobody.
func TestNoCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	tr := New(Options{Endpoint: l.Addr().String(), PerMillion: million})
	require.NoError(t, tr.Connect(t.Context()))
	_, end := tr.Start(t.Context(), "wave")
	end(nil)
	began := time.Now()
	require.ErrorIs(t, tr.Shutdown(t.Context()), context.DeadlineExceeded)
	require.Less(t, time.Since(began), 10*leaveTimeout)
}
