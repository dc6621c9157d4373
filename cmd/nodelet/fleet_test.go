package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// fleetPods are what the fleet is made of. What containers run is decided by
// their names, see fleetPrograms.
const fleetPods = `apiVersion: v1
kind: Pod
metadata: {name: plain-N}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "app:1"}, {name: side, image: "app:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: init-N}
spec:
  terminationGracePeriodSeconds: 2
  initContainers: [{name: proxy, image: "app:1", restartPolicy: Always}, {name: once, image: "app:1"}]
  containers: [{name: main, image: "app:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: job-N}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  initContainers: [{name: once, image: "app:1"}]
  containers: [{name: last, image: "app:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: lost-N}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers: [{name: fails, image: "app:1"}]
`

func fleetPrograms() map[string]fakecri.Program {
	return map[string]fakecri.Program{
		"once":  func(_ context.Context, p *fakecri.Process) int { p.Sleep(200 * time.Millisecond); return 0 },
		"last":  func(_ context.Context, p *fakecri.Process) int { p.Sleep(400 * time.Millisecond); return 0 },
		"fails": func(_ context.Context, p *fakecri.Process) int { p.Sleep(300 * time.Millisecond); return 4 },
	}
}

// fleetWrong tells what is not where it should be.
func fleetWrong(pods map[string]corev1.Pod, want int) string {
	if len(pods) != want {
		return fmt.Sprintf("%d pods", len(pods))
	}
	goals := map[string]corev1.PodPhase{"plain": corev1.PodRunning, "init": corev1.PodRunning, "job": corev1.PodSucceeded, "lost": corev1.PodFailed}
	for name := range pods {
		p := pods[name]
		kind, _, _ := strings.Cut(name, "-")
		if p.Status.Phase != goals[kind] || p.DeletionTimestamp != nil || (p.Status.Phase == corev1.PodRunning && !isReady(&p)) {
			return fmt.Sprintf("%s is %s %s", name, p.Status.Phase, p.Status.Reason)
		}
	}
	return ""
}

// TestFleetOfKilledAgents: many pods, a runtime with faults, and agents that are
// killed at random moments; in the end every pod is where it should be, and
// nothing ran twice.
func TestFleetOfKilledAgents(t *testing.T) {
	bin := binary(t)
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			n, random := bare(t, bin), rand.New(rand.NewPCG(seed, 7))
			cri := fakecri.New(fakecri.Options{PullAny: true, Programs: fleetPrograms()})
			require.NoError(t, cri.Listen(strings.TrimPrefix(n.endpoint, "unix://")))
			t.Cleanup(cri.Close)
			const groups = 8
			for i := range groups {
				n.apply(fmt.Sprint("group", i), strings.ReplaceAll(fleetPods, "-N", fmt.Sprint("-", i)))
			}
			calls := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "ListContainers", "ContainerStatus", "Event"}
			for range 10 {
				cri.Inject(fakecri.Fault{RPC: calls[random.IntN(len(calls))], Nth: 1 + random.IntN(9), Mode: fakecri.Mode(random.IntN(2))})
				n.start()
				time.Sleep(time.Duration(50+random.IntN(900)) * time.Millisecond)
				n.kill()
			}
			cri.ClearFaults()
			n.start()
			n.eventually("the fleet is at its goals", func() bool { return fleetWrong(n.pods(), 4*groups) == "" })
			ids := map[string]string{}
			for name, p := range n.pods() {
				ids[name] = string(p.UID)
			}
			// One group leaves while the agent is killed again and again.
			require.NoError(t, os.Remove(filepath.Join(n.manifests, "group0.yaml")))
			for range 4 {
				time.Sleep(time.Duration(50+random.IntN(500)) * time.Millisecond)
				n.kill()
				n.start()
			}
			n.eventually("the rest of the fleet is at its goals", func() bool { return fleetWrong(n.pods(), 4*(groups-1)) == "" })
			for name, p := range n.pods() {
				require.Equal(t, ids[name], string(p.UID), "%s is still the same", name)
			}
			checkJournal(t, cri)
			require.Len(t, cri.Snapshot().Sandboxes, 4*(groups-1))
		})
	}
}

// checkJournal holds what the runtime was asked against what must always be true.
func checkJournal(t *testing.T, cri *fakecri.Server) {
	t.Helper()
	for _, c := range cri.Calls() {
		if c.RPC != "CreateContainer" {
			continue
		}
		key := fakecri.ContainerKey{UID: c.UID, Name: c.Container}
		require.LessOrEqual(t, cri.MaxRunning(key), 1, "INV-1: %s %s", c.Pod, c.Container)
		require.LessOrEqual(t, cri.Starts(fakecri.AttemptKey{UID: c.UID, Name: c.Container, Attempt: c.Attempt}), 1, "%s %s", c.Pod, c.Container)
		if c.Container != "main" && c.Container != "side" && c.Container != "proxy" {
			require.LessOrEqual(t, cri.TotalStarts(key), 1, "INV-7: %s %s", c.Pod, c.Container)
		}
	}
}
