package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
)

// traceKey is where the tests keep the number of a wave.
type traceKey struct{}

// traced is a machine that notes the wave that inspections belong to.
type traced struct {
	*machine

	waves []any // belongs to the machine's lock
}

func (m *traced) Inspect(ctx context.Context, uid types.UID) (pod.Observation, error) {
	m.mu.Lock()
	m.waves = append(m.waves, ctx.Value(traceKey{}))
	m.mu.Unlock()
	return m.machine.Inspect(ctx, uid)
}

// TestBegin: every wave is told with its actions, its phase and its end, and the
// calls of a wave have its context.
func TestBegin(t *testing.T) {
	var mu sync.Mutex // guards told
	var told []string
	list := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
	inBubble(t, func(b *bench) {
		m := &traced{machine: b.machine}
		b.deps.Runtime = m
		b.fails["start"] = []error{errors.New("no")}
		n := 0
		b.deps.Begin = func(ctx context.Context, w podworkers.Wave) (in context.Context, end func([]plan.Result)) {
			mu.Lock()
			defer mu.Unlock()
			n++
			name := fmt.Sprintf("%d %s %s", n, w.Pod.Name, w.Phase)
			return context.WithValue(ctx, traceKey{}, n), func(results []plan.Result) {
				mu.Lock()
				defer mu.Unlock()
				text := []string{name}
				for i, r := range results {
					text = append(text, fmt.Sprintf("%s=%v", w.Actions[i].Op, r.Err))
				}
				told = append(told, strings.Join(text, " "))
			}
		}
		p := newPod("p")
		box := b.start(p)
		time.Sleep(time.Minute)
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
		r := b.paper.report(p.UID)
		require.Equal(b, pod.StateRunning, r.Observed.Containers[0].State)
		require.EqualValues(b, 1, r.Record.Containers["main"].Attempts)
		require.NotNil(b, r.Record.Status)
		zero := int64(0)
		box.PutStop(pod.StopRequest{Delete: true, GraceSeconds: &zero})
		time.Sleep(time.Minute)
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, wave := range m.waves {
			require.Equal(b, i+1, wave, "each wave ends with one inspection")
		}
		require.Len(b, list(), len(m.waves))
	})
	require.Equal(t, []string{
		"1 p syncing",
		"2 p syncing set-up-volumes=<nil> create-sandbox=<nil>",
		"3 p syncing create-container=<nil>",
		"4 p syncing start-container=no",
		"5 p syncing start-container=<nil>",
		"6 p terminating stop-container=<nil>",
		"7 p terminating stop-sandbox=<nil>",
		"8 p terminated remove-container=<nil> tear-down-volumes=<nil>",
		"9 p terminated remove-sandbox=<nil>",
	}, list())
}
