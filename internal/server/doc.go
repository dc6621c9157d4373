// Package server answers HTTP requests on the agent's socket: health, pods,
// events and what the status command shows. It reads published snapshots and
// changes nothing.
package server
