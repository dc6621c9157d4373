package gc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Period is the time between two rounds (C-19).
const Period = time.Minute

// Runtime is what the collector asks of the runtime.
type Runtime interface {
	List(ctx context.Context) (map[types.UID]pod.Observation, error)
	RemoveContainer(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// Collector removes garbage in rounds. It holds nothing between them.
type Collector struct {
	Runtime Runtime
	// Worked reports whether a pod has a worker.
	Worked func(types.UID) bool
	// PodLogsDir holds the logs, LinksDir the links to them; empty for none.
	PodLogsDir string
	LinksDir   string
	// Failed is told of a round that failed.
	Failed func(error)
}

// Run works until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := c.Round(ctx); err != nil && ctx.Err() == nil && pod.ClassOf(err) != pod.ClassUnavailable {
			c.Failed(err)
		}
	}
}

// Round removes what is garbage now. One failure does not hold up the rest.
func (c *Collector) Round(ctx context.Context) error {
	pods, err := c.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("cannot list pods: %w", err)
	}
	victims := Victims(pods, c.Worked)
	var failed []error
	for _, id := range victims.Containers {
		failed = append(failed, c.Runtime.RemoveContainer(ctx, id))
	}
	for _, id := range victims.Sandboxes {
		failed = append(failed, c.Runtime.RemoveSandbox(ctx, id))
	}
	failed = append(failed, removeDeadLinks(c.LinksDir, c.PodLogsDir))
	return errors.Join(failed...)
}

// removeDeadLinks removes links to logs that are gone (GC-7): those that lead
// into our log directory and nowhere else.
func removeDeadLinks(dir, logs string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look for dead links: %w", err)
	}
	var failed []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, logs+string(filepath.Separator)) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			failed = append(failed, os.Remove(path))
		}
	}
	return errors.Join(failed...)
}

// RemoveLogs removes the logs of a pod of which nothing is left.
func RemoveLogs(podLogsDir string, key pod.Key, uid types.UID) error {
	return os.RemoveAll(filepath.Join(podLogsDir, fmt.Sprintf("%s_%s_%s", key.Namespace, key.Name, uid)))
}
