package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// changing are the calls that change something in the runtime; a kill anywhere
// else loses nothing that could be asked again.
var changing = []string{
	"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox",
}

// killer kills the agent at one moment: the n-th changing call, at one stage.
type killer struct {
	n     *node
	stage rig.Stage
	at    int

	mu    sync.Mutex // guards the fields below
	seen  int
	where string // what it hit
}

var errKilled = errors.New("the agent is dead")

func (k *killer) hook(method string, stage rig.Stage) error {
	if stage != k.stage || !slices.Contains(changing, method) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen++
	if k.where != "" || k.seen != k.at {
		return nil
	}
	k.where = fmt.Sprintf("%s %s", stage, method)
	k.n.kill()
	return errKilled
}

func (k *killer) hit() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.where
}

// TestRealKillAtEveryStep kills the agent with SIGKILL at each changing call of
// the start and the stop of pods, once before the runtime gets the call and once
// when its answer is on the way. Whatever the moment, the end is that of an
// uninterrupted run, and nothing ran twice.
func TestRealKillAtEveryStep(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		for _, stage := range []rig.Stage{rig.Before, rig.After} {
			for at := 1; ; at++ {
				var where string
				t.Run(fmt.Sprintf("%s-%d", stage, at), func(t *testing.T) { where = killOnce(t, c, bin, stage, at) })
				if t.Failed() {
					return
				}
				if where == "" {
					require.Greater(t, at, 15, "a start and a stop take many calls")
					break // past the last call
				}
				t.Logf("killed %s", where)
			}
		}
	})
}

func killOnce(t *testing.T, c *rig.Containerd, bin string, stage rig.Stage, at int) string {
	t.Helper()
	n := newNode(t, bin, "")
	proxy, err := rig.NewProxy(t.Context(), filepath.Join(n.dir, "cri.sock"), c.Address())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	n.endpoint = proxy.Endpoint()
	k := &killer{n: n, stage: stage, at: at}
	proxy.Hook(k.hook)
	n.start()
	walk(t, n, c)
	return k.hit()
}

// walk brings two pods up and takes them down again, and brings the agent back
// whenever it is found dead. The end must be that of an uninterrupted run.
func walk(t *testing.T, n *node, c *rig.Containerd) {
	t.Helper()
	settled := func(what string, holds func() bool) {
		n.eventually(what, func() bool {
			if !n.running() {
				n.start()
			}
			return holds()
		})
	}
	n.apply("worker", worker)
	n.apply("job", job)
	settled("both pods are where they belong", func() bool {
		j := n.pods()["job"]
		return n.isReady("worker") && j.Status.Phase == corev1.PodSucceeded
	})
	settled("all have run", func() bool { return len(n.ran("worker")) == 3 && n.pods() != nil })
	require.Equal(t, []string{"prepare", "main"}, n.ran("job"))
	require.Equal(t, []string{"prepare", "helper", "main"}, n.ran("worker"))
	w := n.pods()["worker"]
	for _, name := range []string{"prepare", "helper", "main"} {
		require.Zero(t, restarts(&w, name), "nothing was restarted: %s", name)
	}

	n.remove("worker")
	n.remove("job")
	settled("nothing is left", func() bool {
		pods := n.pods()
		return pods != nil && len(pods) == 0
	})
	require.Equal(t, []string{"prepare", "helper", "main", "main-ended", "helper-ended"}, n.ran("worker"), "INV-9: each ended once, in order")
	require.Equal(t, []string{"prepare", "main"}, n.ran("job"), "INV-7")
	require.NotContains(t, strings.TrimSpace(ctr(t, c, "containers", "ls")), "\n", "only the header is left")
}

// killRuns is how many random runs there are; make kill asks for more.
var killRuns = flag.Int("kill.n", 3, "runs of the test that kills the agent at any time")

// TestRealKillAtAnyTime kills the agent at random moments, several times in the
// life of the pods, with calls in flight for both.
func TestRealKillAtAnyTime(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		for run := range *killRuns {
			t.Run(strconv.Itoa(run), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(run), 0)) //nolint:gosec // a seed that can be replayed
				n := newNode(t, bin, c.Endpoint())
				n.start()
				ended := make(chan struct{})
				var killing sync.WaitGroup
				killing.Go(func() {
					for range 8 {
						select {
						case <-ended:
							return
						case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
							n.kill()
						}
					}
				})
				walk(t, n, c)
				close(ended)
				killing.Wait()
			})
		}
	})
}
