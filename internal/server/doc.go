// Package server answers HTTP on the agent's socket: health as Kubernetes'
// components do, the pods, the events, the metrics, the status of the agent itself
// and, where the configuration allows it, profiles and the agent's state. The
// metrics can be had on a TCP address too. It only reads.
package server
