// Package tracing sends spans to an OpenTelemetry collector by OTLP over gRPC:
// what is done to a pod, and the calls of the runtime below it. What belongs to no
// pod, such as the regular listing of all of them, is not traced. A nil *Tracer
// traces nothing and costs nothing. Spans that cannot be sent are dropped.
package tracing
