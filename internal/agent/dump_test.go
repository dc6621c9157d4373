package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestStateDump: each pod with its record, its last plan, what is being done and
// why it waits; and nothing that may be secret.
func TestStateDump(t *testing.T) {
	images := []fakecri.Image{{Ref: "slow:1", PullLatency: time.Hour}}
	onStage(t, fakecri.Options{Images: images}, file, func(s *stage) {
		s.a.cfg.EnableStateDump = true
		live := s.a.cfg
		live.StaticPodURL = "https://user:hunter2@host/pods"
		live.StaticPodURLHeader = map[string][]string{"Authorization": {"Bearer hunter2"}}
		s.a.live.Store(&live)
		crash := changed(newPod("crash"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"sh", "-c", "sleep 1; exit 3"}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}
		})
		stuck := changed(newPod("stuck"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "slow:1" })
		s.send("file", crash, stuck)
		s.after(5 * time.Second)
		state := s.a.Debug().State
		require.NotNil(s, state)
		text, err := json.MarshalIndent(state(s.Context()), "", " ")
		require.NoError(s, err)
		require.NotContains(s, string(text), "hunter2")
		require.Contains(s, string(text), `"REDACTED"`)
		require.NotContains(s, string(text), "PASSWORD")
		var d stateDump
		require.NoError(s, json.Unmarshal(text, &d))
		require.Equal(s, "edge", d.Agent.Node)
		require.True(s, d.Agent.Sources[0].Delivered)
		require.EqualValues(s, 110, d.Config.MaxPods)
		require.Empty(s, d.PLEG.Problem)
		require.False(s, d.PLEG.Relisted.IsZero())
		require.Len(s, d.Pods, 2)

		p := d.Pods[0]
		require.Equal(s, []string{"crash", "shop", "syncing", "file"}, []string{p.Name, p.Namespace, p.Phase, p.Source})
		require.True(s, p.HasWorker)
		require.Equal(s, map[string]string{"main": "app:1"}, p.Images)
		require.Equal(s, "CrashLoopBackOff", p.Waits[0].Reason)
		require.EqualValues(s, 3, p.Record.Containers["main"].Exit.ExitCode)
		require.Nil(s, p.Record.Status)
		require.True(s, p.Memory.VolumesReady)
		require.WithinRange(s, p.Plan.WakeAt, time.Now(), time.Now().Add(10*time.Second))
		require.Equal(s, "exited", p.Observed.Containers[0].State)
		require.True(s, p.Observed.Sandboxes[0].Ready)
		require.NotEmpty(s, p.Observed.Sandboxes[0].Spec)
		require.NotEmpty(s, p.Observed.Containers[0].Hash)

		p = d.Pods[1]
		require.Equal(s, []string{"pull-image main slow:1 attempt=0"}, p.Plan.Pulls)
		require.Contains(s, p.Doing.Pulling, "main")
		require.Empty(s, p.Doing.Wave)

		// A call that hangs is seen at once.
		s.cri.Inject(fakecri.Fault{RPC: "RunPodSandbox", Mode: fakecri.Slow, Delay: time.Minute})
		s.send("file", crash, stuck, newPod("web"))
		d = s.a.dump(s.Context())
		require.Equal(s, "web", d.Pods[2].Name)
		require.Contains(s, d.Pods[2].Doing.Wave, "create-sandbox attempt=0")
		require.False(s, d.Pods[2].Doing.Since.IsZero())
		s.after(2 * time.Minute)
		require.Empty(s, s.a.dump(s.Context()).Pods[2].Doing.Wave)
	})
}

// TestWriteState: the newest few files stay, and only their owner reads them.
func TestWriteState(t *testing.T) {
	run := t.TempDir()
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.a.cfg.RunDirectory = run
		_, err := s.a.WriteState(s.Context())
		require.EqualError(s, err, "cannot write the state: set enableStateDump: true in the configuration and restart nodelet")
		require.Nil(s, s.a.Debug().State)
		s.a.cfg.EnableStateDump = true
		s.send("file", newPod("web"))
		var newest string
		for range keptDumps + 2 {
			newest, err = s.a.WriteState(s.Context())
			require.NoError(s, err)
			s.after(time.Second)
		}
		left, err := filepath.Glob(filepath.Join(run, "*"))
		require.NoError(s, err)
		require.Len(s, left, keptDumps)
		require.Equal(s, newest, left[keptDumps-1])
		info, err := os.Stat(newest)
		require.NoError(s, err)
		require.Equal(s, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(newest)
		require.NoError(s, err)
		var d stateDump
		require.NoError(s, json.Unmarshal(text, &d))
		require.Equal(s, "web", d.Pods[0].Name)
	})
}
