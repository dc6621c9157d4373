// Package probes runs the probes of containers on schedule.
//
// A [Manager] is told by each pod's worker which probes are to run (Set), and puts
// what they conclude into the worker's inbox. One goroutine per active probe owns
// its timer and its counter, so one probe never runs twice at a time, and what
// one instance of a container did is never charged to the next. Schedules are
// monotonic. [Count], which turns results into verdicts by thresholds, is pure.
//
// What a probe does is a handler: a command in the container, an HTTP request, a
// TCP connection or a gRPC health check, each by the kubelet's rules. A result
// exists only when the container was asked: a runtime that is away, or a probe
// that cannot be made, gives none.
package probes
