// Package pleg is the pod lifecycle event generator: it notices what happens to
// pods in the runtime and reports the pods that changed, each with its newest
// observation.
//
// It follows the runtime's event stream, where events are hints only: state
// always comes from asking. A slow relist catches what the stream lost. While
// there is no stream, the relist runs every second. Pods are inspected side by
// side with a bound, so one slow pod delays nobody else (Q-24, INV-23).
package pleg
