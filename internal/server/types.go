package server

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Agent is what the server shows.
type Agent interface {
	// Live returns an error when the process is not able to work.
	Live() error
	// Checks returns what must hold for the node to be ready.
	Checks(ctx context.Context) []Check
	Pods() *corev1.PodList
	// EventsSince returns the events that changed after a revision, the revision
	// of the newest change, and a channel that is closed at the next one.
	EventsSince(revision uint64) (changed []corev1.Event, newest uint64, next <-chan struct{})
	Status(ctx context.Context) Status
	// Metrics answers a scrape.
	Metrics() http.Handler
	// Debug says what is served for those who look for a fault.
	Debug() Debug
}

// Debug is what is served below /debug.
type Debug struct {
	// Profiling says that the profiles of package pprof are.
	Profiling bool
	// State returns the state of the agent, for JSON; nil when it is not served.
	State func(ctx context.Context) any
}

// Check is one named condition; a nil error means it holds.
type Check struct {
	Name string
	Err  error
}

// Status is what the status command shows beside the pods.
type Status struct {
	Version string    `json:"version"`
	Node    string    `json:"node"`
	Started time.Time `json:"started"`
	RootDir string    `json:"rootDir"`
	// Problem is why the agent does nothing at all; empty when it works.
	Problem string `json:"problem,omitempty"`
	// ConfigProblem is why the configuration was not taken when it was loaded
	// again; empty when it was.
	ConfigProblem string `json:"configProblem,omitempty"`
	// NeedsRestart are the fields of the configuration that changed and that only
	// a restart applies.
	NeedsRestart []string `json:"needsRestart,omitempty"`

	Runtime RuntimeState  `json:"runtime"`
	Sources []SourceState `json:"sources"`
}

// RuntimeState is what the container runtime says about itself.
type RuntimeState struct {
	Endpoint string `json:"endpoint"`
	Name     string `json:"name,omitempty"`
	Version  string `json:"version,omitempty"`
	// Events is where news of containers come from: cri, containerd or none.
	Events string `json:"events,omitempty"`
	// Problem is empty when runtime and network are ready.
	Problem string `json:"problem,omitempty"`
}

// SourceState is the state of one source of pods.
type SourceState struct {
	Name      string   `json:"name"`
	Origin    string   `json:"origin"`
	Delivered bool     `json:"delivered"`
	Pods      int      `json:"pods"`
	Problems  []string `json:"problems,omitempty"`
}

// WatchEvent is one change in the answer to a watch of events, as Kubernetes
// writes it.
type WatchEvent struct {
	Type   watch.EventType `json:"type"`
	Object corev1.Event    `json:"object"`
}
