package agent

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestReloadRefused: a broken configuration changes nothing, and everybody hears
// of it until there is a good one.
func TestReloadRefused(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(maxPods(1))
		fault := config.Errors{{Origin: config.Origin{Kind: config.FromFile, Name: "/c.yaml", Line: 3, Column: 1}, Reason: `unknown field "x"`}}
		s.a.Reload(config.Loaded{}, fault)
		s.settle()
		require.Equal(s, "cannot use the configuration: /c.yaml:3:1: unknown field \"x\"", s.a.Status(s.Context()).ConfigProblem)
		require.Equal(s, []string{"InvalidConfiguration cannot use the configuration: /c.yaml:3:1: unknown field \"x\"; the old one stays in force"},
			s.withReason("edge", "InvalidConfiguration"))
		require.EqualValues(s, 1, s.a.live.Load().MaxPods)
		for _, c := range s.a.Checks(s.Context()) {
			require.NotContains(s, c.Name, "config")
			if c.Name == "sources" {
				continue // which have not delivered in this test
			}
			require.NoError(s, c.Err, c.Name)
		}
		s.a.Reload(config.Loaded{}, errors.New("cannot do it"))
		require.Equal(s, "cannot do it", s.a.Status(s.Context()).ConfigProblem)
		s.reloadWith(maxPods(2))
		require.Empty(s, s.a.Status(s.Context()).ConfigProblem)
	})
}

// withReason returns the events of a reason about an object.
func (s *stage) withReason(name, reason string) []string {
	var out []string
	for _, text := range s.events(name) {
		if len(text) > len(reason) && text[:len(reason)] == reason {
			out = append(out, text)
		}
	}
	return out
}

// TestReloadNeedsRestart: what cannot be applied is named, compared with what the
// agent was started with.
func TestReloadNeedsRestart(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		before := s.cfg
		s.reloadWith(func(c *config.Configuration) {
			c.PodLogsDir, c.MaxPods, c.ClusterDomain = "/elsewhere", 7, "example.com"
		})
		require.Equal(s, []string{"clusterDomain", "podLogsDir"}, s.a.Status(s.Context()).NeedsRestart)
		require.Equal(s, []string{"ConfigurationNeedsRestart A restart of nodelet applies what changed in clusterDomain, podLogsDir"}, s.withReason("edge", "ConfigurationNeedsRestart"))
		require.Equal(s, before.PodLogsDir, s.a.live.Load().PodLogsDir)
		require.EqualValues(s, 7, s.a.live.Load().MaxPods)
		s.reloadWith(func(c *config.Configuration) { *c = before })
		require.Empty(s, s.a.Status(s.Context()).NeedsRestart)
		require.EqualValues(s, 110, s.a.live.Load().MaxPods)
	})
}

// TestReloadBackoff: the longest delay of restarts counts from the next restart
// on.
func TestReloadBackoff(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		p := newPod("a")
		p.Spec.Containers[0].Command = []string{"sh", "-c", "exit 1"}
		s.send("file", p)
		s.after(12 * time.Minute) // the delay has grown to five minutes
		starts := len(s.calls("StartContainer", "a"))
		s.after(10 * time.Minute)
		require.LessOrEqual(s, len(s.calls("StartContainer", "a"))-starts, 3)
		s.reloadWith(func(c *config.Configuration) {
			c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 5 * time.Second}
		})
		s.after(6 * time.Minute) // the delay that runs is not cut short
		starts = len(s.calls("StartContainer", "a"))
		s.after(2 * time.Minute)
		require.GreaterOrEqual(s, len(s.calls("StartContainer", "a"))-starts, 6, "with the old delay it would be one")
	})
}

// TestReloadPullRate: pulls begin as often as the live configuration says.
func TestReloadPullRate(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.reloadWith(func(c *config.Configuration) { c.RegistryPullQPS, c.RegistryBurst = new(int32(1)), 1 })
		var pods []*corev1.Pod
		pull := func(round string) time.Duration {
			from := len(s.calls("PullImage", ""))
			for i := range 6 {
				p := newPod(round + strconv.Itoa(i))
				p.Spec.Containers[0].Image = "app:" + p.Name
				pods = append(pods, p)
			}
			s.send("file", pods...)
			s.after(time.Minute)
			calls := s.calls("PullImage", "")[from:]
			require.Len(s, calls, 6)
			return calls[5].Began.Sub(calls[0].Began)
		}
		require.GreaterOrEqual(s, pull("slow"), 4*time.Second)
		s.reloadWith(func(c *config.Configuration) { c.RegistryBurst = 6 })
		s.after(time.Minute) // which fills the burst
		require.Less(s, pull("burst"), time.Second)
		s.reloadWith(func(c *config.Configuration) { c.RegistryBurst = 1 })
		require.GreaterOrEqual(s, pull("again"), 4*time.Second)
		s.reloadWith(func(c *config.Configuration) { c.RegistryPullQPS = new(int32(0)) })
		require.Less(s, pull("free"), time.Second)
	})
}
