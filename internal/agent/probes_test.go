package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// looks is a probe that succeeds while a file is there.
func looks(file string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", file}}},
		PeriodSeconds: 5, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
	}
}

// probedPod has a container that is up when it has /up, ready when it has /ready,
// and alive unless it lacks /alive.
func probedPod(name string) *corev1.Pod {
	return changed(newPod(name), func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = looks("/up"), looks("/ready"), looks("/alive")
		c.StartupProbe.FailureThreshold = 30
	})
}

func (s *stage) containerID(name, container string) string {
	s.Helper()
	id := ""
	for _, c := range s.cri.Snapshot().Containers {
		if c.UID == string(s.uid(name)) && c.Name == container && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			id = c.ID
		}
	}
	require.NotEmpty(s, id, "%s of %s does not run", container, name)
	return id
}

func (s *stage) touch(name, container string, files ...string) {
	s.Helper()
	for _, file := range files {
		require.NoError(s, s.cri.WriteFile(s.containerID(name, container), file, "x"))
	}
}

func (s *stage) remove(name, container, file string) {
	s.Helper()
	require.NoError(s, s.cri.RemoveFile(s.containerID(name, container), file))
}

// execs counts the runs of a probe of a pod.
func (s *stage) execs(name, file string) int {
	n := 0
	for _, c := range s.calls("ExecSync", name) {
		if c.Request.(*runtimeapi.ExecSyncRequest).GetCmd()[1] == file {
			n++
		}
	}
	return n
}

func (s *stage) ready(name string) bool {
	s.Helper()
	for _, c := range s.shown(name).Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// TestProbes: the three probes of a container from its start to a restart.
func TestProbes(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", changed(probedPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = new(int64(7)) }))
		s.touch("a", "main", "/alive", "/ready")
		s.after(20 * time.Second)
		require.False(s, s.ready("a"), "PRB-11: it has not started")
		require.Equal(s, 5, s.execs("a", "/up"))
		require.Zero(s, s.execs("a", "/ready")+s.execs("a", "/alive"))
		require.Equal(s, 5, s.reasons("a")["Unhealthy"])

		s.touch("a", "main", "/up")
		s.after(5 * time.Second)
		require.True(s, s.ready("a"), "readiness is asked as soon as it has started")
		s.remove("a", "main", "/ready")
		s.after(10 * time.Second)
		require.True(s, s.ready("a"), "two failures")
		s.after(5 * time.Second)
		require.False(s, s.ready("a"))
		require.Equal(s, 6, s.execs("a", "/up"), "PRB-7")
		s.touch("a", "main", "/ready")
		s.after(5 * time.Second)
		require.True(s, s.ready("a"))

		before := s.containerID("a", "main")
		s.remove("a", "main", "/alive")
		s.after(16 * time.Second)
		require.NotEqual(s, before, s.containerID("a", "main"))
		require.Equal(s, []int64{7}, s.graces("a"), "PRB-18")
		require.Contains(s, s.events("a"), "Killing Container main failed liveness probe, will be restarted")
		require.Contains(s, s.events("a"), `Unhealthy Liveness probe failed: cat: can't open '/alive': No such file or directory`+"\n")
		st := s.shown("a").Status.ContainerStatuses[0]
		require.EqualValues(s, 1, st.RestartCount)
		require.False(s, *st.Started, "the next instance begins anew")
		require.False(s, st.Ready)

		s.send("file")
		s.after(time.Minute)
		require.Empty(s, s.a.Pods().Items)
		require.Zero(s, s.a.prober.Len())
	})
}

// TestProbesAcrossRestarts: INV-10. An agent that comes back shows what its
// predecessor knew, from the first moment; the start is not probed again; and what
// happened meanwhile counts as ever.
func TestProbesAcrossRestarts(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		pods := []*corev1.Pod{probedPod("well"), probedPod("sick"), probedPod("young")}
		s.send("file", pods...)
		for _, name := range []string{"well", "sick"} {
			s.touch(name, "main", "/up", "/alive")
		}
		s.touch("well", "main", "/ready")
		s.touch("young", "main", "/alive", "/ready")
		s.after(30 * time.Second)
		ids := map[string]string{}
		for _, p := range pods {
			ids[p.Name] = s.containerID(p.Name, "main")
		}
		look := func() {
			require.True(s, s.ready("well"))
			require.False(s, s.ready("sick"), "it never flashes")
			require.False(s, s.ready("young"))
			require.True(s, *s.shown("well").Status.ContainerStatuses[0].Started)
			require.False(s, *s.shown("young").Status.ContainerStatuses[0].Started)
		}
		look()
		for range 3 {
			ups := s.execs("well", "/up")
			s.stop()
			time.Sleep(time.Minute)
			s.start()
			for range 200 {
				look()
				s.after(50 * time.Millisecond)
			}
			s.send("file", pods...)
			look()
			require.Equal(s, ups, s.execs("well", "/up"))
			require.Equal(s, ids["well"], s.containerID("well", "main"))
			require.Zero(s, s.shown("well").Status.ContainerStatuses[0].RestartCount)
		}
		s.stop()
		s.start()
		s.remove("well", "main", "/alive")
		s.after(21 * time.Second)
		require.NotEqual(s, ids["well"], s.containerID("well", "main"), "it is still looked after")
	})
}

// TestProbesWithoutRuntime: an outage of the runtime is no failure of a pod, also
// when only commands are affected.
func TestProbesWithoutRuntime(t *testing.T) {
	for _, mode := range []fakecri.Mode{fakecri.FailBefore, fakecri.HangBefore} {
		onStage(t, fakecri.Options{}, file, func(s *stage) {
			s.send("file", probedPod("a"))
			s.touch("a", "main", "/up", "/alive", "/ready")
			s.after(10 * time.Second)
			require.True(s, s.ready("a"))
			id := s.containerID("a", "main")
			told := s.reasons("a")["Unhealthy"]
			s.cri.Inject(fakecri.Fault{Times: -1, Mode: mode})
			for range 60 {
				s.after(10 * time.Second)
				require.True(s, s.ready("a"))
			}
			s.cri.ClearFaults()
			s.after(3 * time.Minute)
			require.Equal(s, id, s.containerID("a", "main"))
			require.Equal(s, told, s.reasons("a")["Unhealthy"])
			s.remove("a", "main", "/ready")
			s.after(time.Minute)
			require.False(s, s.ready("a"), "the probes run again")
		})
	}
}

// TestStuckProbe: a command that hangs is ended and counts as a failure, and there
// is never more than one of it, however long that goes on.
func TestStuckProbe(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", changed(newPod("a"), func(p *corev1.Pod) {
			stuck := looks("")
			stuck.Exec.Command = []string{"sleep", "100000"}
			stuck.TimeoutSeconds, stuck.PeriodSeconds = 3, 1
			p.Spec.Containers[0].ReadinessProbe = stuck
		}))
		s.after(10 * time.Minute)
		require.False(s, s.ready("a"))
		var last time.Time
		calls := s.calls("ExecSync", "a")
		require.InDelta(s, 150, len(calls), 5)
		for _, c := range calls[:len(calls)-1] {
			require.False(s, c.Began.Before(last))
			require.Equal(s, codes.DeadlineExceeded, status.Code(c.Err))
			last = c.Ended
		}
		require.Contains(s, s.events("a"), `Unhealthy Readiness probe failed: command timed out: "sleep 100000" timed out after 3s`)
	})
}

// TestSidecarStartup: what comes after a sidecar waits for its startup probe, and a
// sidecar that fails it is started and probed again whatever the policy of the pod
// (INI-10, INI-12).
func TestSidecarStartup(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", changed(newPod("a"), func(p *corev1.Pod) {
			always := corev1.ContainerRestartPolicyAlways
			side := corev1.Container{Name: "side", Image: "side:1", RestartPolicy: &always, StartupProbe: looks("/up"), ReadinessProbe: looks("/ready")}
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Spec.InitContainers = []corev1.Container{side}
		}))
		s.after(11 * time.Second)
		require.Equal(s, []string{"a side"}, s.running())
		s.after(time.Second)
		require.EqualValues(s, 1, s.shown("a").Status.InitContainerStatuses[0].RestartCount)
		s.touch("a", "side", "/up")
		s.after(6 * time.Second)
		require.Equal(s, []string{"a main", "a side"}, s.running())
		require.False(s, s.ready("a"), "a sidecar's readiness counts")
		s.touch("a", "side", "/ready")
		s.after(6 * time.Second)
		require.True(s, s.ready("a"))
	})
}

// TestProbeLoop: a container that fails its probe again and again is restarted
// with growing delays.
func TestProbeLoop(t *testing.T) {
	onStage(t, fakecri.Options{}, file, func(s *stage) {
		s.send("file", changed(newPod("a"), func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = looks("/never") }))
		s.after(10 * time.Minute)
		starts := s.calls("StartContainer", "a")
		var waits []int
		for i := range starts[1:6] {
			waits = append(waits, int((starts[i+1].Began.Sub(starts[i].Began) - 10*time.Second).Round(time.Second).Seconds()))
		}
		require.Equal(s, []int{0, 10, 20, 40, 80}, waits)
	})
}
