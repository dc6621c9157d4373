package podworkers_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// TestWholeLife: a pod from its first sight to nothing left of it, with every
// call and every event, each once.
func TestWholeLife(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("web", container("main"), container("side"))
		p.Spec.InitContainers = []corev1.Container{container("first")}
		b.crashes["first"] = 0 // it is done at once
		box := b.start(p)
		b.settle()
		require.Equal(b, map[string]string{"first": "exited", "main": "running", "side": "running"}, b.states(p.UID))
		require.ElementsMatch(b, []string{
			"create-sandbox web", "pull first:1", "create first", "start first", "pull main:1", "pull side:1",
			"create main", "create side", "start main", "start side",
		}, b.ops())
		require.ElementsMatch(b, []string{
			`Normal Pulling first: Pulling image "first:1"`,
			`Normal Pulled first: Successfully pulled image "first:1" in 0s (0s including waiting). Image size: 4096 bytes.`,
			"Normal Created first: Container created", "Normal Started first: Container started",
			`Normal Pulling main: Pulling image "main:1"`,
			`Normal Pulled main: Successfully pulled image "main:1" in 0s (0s including waiting). Image size: 4096 bytes.`,
			`Normal Pulling side: Pulling image "side:1"`,
			`Normal Pulled side: Successfully pulled image "side:1" in 0s (0s including waiting). Image size: 4096 bytes.`,
			"Normal Created main: Container created", "Normal Created side: Container created",
			"Normal Started main: Container started", "Normal Started side: Container started",
		}, b.paper.take())
		require.Equal(b, corev1.PodRunning, b.paper.report(p.UID).Status.Phase)
		require.Empty(b, b.paper.report(p.UID).Waits)

		before := len(b.ops())
		b.stopTakes["main"], b.stopTakes["side"] = 2*time.Second, 5*time.Second
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()
		require.EqualValues(b, 30, b.paper.report(p.UID).Deletion.GraceSeconds)
		time.Sleep(10 * time.Second)
		b.settle()
		require.ElementsMatch(b, []string{
			"stop main 30s", "stop side 30s", "stop-sandbox box-1", "remove first", "remove main", "remove side", "remove-sandbox box-1",
		}, b.ops()[before:])
		require.ElementsMatch(b, []string{
			"Normal Killing main: Stopping container main", "Normal Killing side: Stopping container side",
		}, b.paper.take())
		require.Equal(b, []types.UID{p.UID}, b.folders.tornDown)
		require.Equal(b, []types.UID{p.UID}, b.paper.gone())
		require.Equal(b, pod.PhaseTerminated, b.disk.record(p.UID).Phase, "what follows is to forget it")
		require.Empty(b, b.look(p.UID).Sandboxes)
	})
}

// TestIdle: DESIGN section 9. Nothing happens for a pod that is as it should be.
func TestIdle(t *testing.T) {
	inBubble(t, func(b *bench) {
		for i := range 20 {
			b.start(newPod(fmt.Sprint("idle", i)))
		}
		b.settle()
		calls, writes := b.count(), b.disk.written()
		time.Sleep(time.Hour)
		require.Equal(b, calls, b.count())
		require.Equal(b, writes, b.disk.written())
		b.workers.Poke() // the resync of the loop
		b.settle()
		require.Equal(b, calls, b.count())
	})
}

// TestOneWorkerPerUID: PW-1.
func TestOneWorkerPerUID(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("web")
		box := b.start(p)
		require.PanicsWithValue(b, "PW-1: a second worker for one UID", func() { b.start(p) })
		require.Same(b, box, b.workers.Get(p.UID))
		require.Equal(b, 1, b.workers.Len())
		require.Nil(b, b.workers.Get("somebody"))
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()
		require.Equal(b, []types.UID{p.UID}, b.paper.gone())
		b.workers.Forget(p.UID)
		require.Zero(b, b.workers.Len())
		b.start(p) // PW-13: the same UID again, once the first is finished
		b.settle()
		require.Equal(b, map[string]string{"main": "running"}, b.states(p.UID))
	})
}

// TestMailIsCoalesced: PW-1. However often a worker is told something while it is
// busy, it acts once on the newest.
func TestMailIsCoalesced(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.takes["create-sandbox"] = 10 * time.Second
		p := newPod("web")
		box := b.start(p)
		b.settle()
		for i := range 100 {
			next := p.DeepCopy()
			next.Spec.Containers[0].Image = fmt.Sprint("main:", i)
			box.PutPod(next)
			box.PutObservation(pod.Observation{TakenAt: b.began.Add(time.Duration(i))})
			box.Poke()
		}
		time.Sleep(20 * time.Second)
		b.settle()
		require.Equal(b, 1, b.did("create-sandbox"))
		require.Equal(b, 1, b.did("pull", "main:99"))
		require.Equal(b, 1, b.did("create"))
		require.LessOrEqual(b, b.did("pull"), 2)
		require.Equal(b, "main:99", b.look(p.UID).Containers[0].Image)
	})
}

// TestStaleObservation: INV-13. What was seen before the last wave ended starts
// nothing twice.
func TestStaleObservation(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("web")
		stale := b.look(p.UID)
		time.Sleep(time.Second)
		box := b.start(p)
		b.settle()
		before := b.count()
		box.PutObservation(stale)
		b.settle()
		require.Equal(b, before, b.count(), "older than what the worker saw itself")

		// Taken while a wave runs, it is newer than what is known and yet too old.
		b.takes["start"] = time.Minute
		b.exit(p.UID, "main", 1)
		box.PutObservation(b.look(p.UID))
		time.Sleep(10 * time.Second)
		dead := b.look(p.UID)
		time.Sleep(time.Minute)
		box.PutObservation(dead)
		b.settle()
		require.Equal(b, 2, b.did("create"))
		require.Equal(b, 2, b.did("start"))
	})
}

// TestRunsToCompletion: a job ends by itself: its containers stay to be looked
// at, nothing is left running, and the worker stays until the pod is unwanted.
func TestRunsToCompletion(t *testing.T) {
	for code, phase := range map[int32]corev1.PodPhase{0: corev1.PodSucceeded, 3: corev1.PodFailed} {
		inBubble(t, func(b *bench) {
			p := newPod("job")
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			b.crashes["main"] = code
			b.folders.messages = map[string]string{"main0": "all counted"}
			box := b.start(p)
			b.settle()
			r := b.paper.report(p.UID)
			require.Equal(b, phase, r.Status.Phase)
			require.Equal(b, "all counted", r.Status.ContainerStatuses[0].State.Terminated.Message)
			require.Nil(b, r.Deletion)
			require.Equal(b, pod.PhaseTerminated, r.Phase)
			require.Equal(b, 1, b.did("stop-sandbox"))
			require.Zero(b, b.did("remove"))
			require.Equal(b, []types.UID{p.UID}, b.folders.tornDown)
			require.Empty(b, b.paper.gone())
			time.Sleep(time.Hour)
			require.Equal(b, 1, b.did("start"))
			box.PutStop(pod.StopRequest{Delete: true})
			b.settle()
			require.Equal(b, []types.UID{p.UID}, b.paper.gone())
		})
	}
}

// TestResume: INV-7 and RST-3. A worker that starts with a record and finds its
// pod running does nothing at all.
func TestResume(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := newPod("web")
		p.Spec.InitContainers = []corev1.Container{container("first")}
		b.crashes["first"] = 0
		box := b.start(p)
		b.settle()
		rec := b.disk.record(p.UID)
		require.Equal(b, "box-1", rec.Initialized.SandboxID)
		box.PutStop(pod.StopRequest{Delete: true})
		b.settle()

		// The same again, with another agent in between.
		q := newPod("again")
		q.Spec.InitContainers = p.Spec.InitContainers
		b.start(q)
		b.settle()
		b.leave()
		rec = b.disk.record(q.UID)
		ops := len(b.ops())
		b.paper.take()
		b.change(func() { // the collector removed what is done
			list := b.containers[q.UID]
			for i := range list {
				if list[i].Name == "first" {
					b.containers[q.UID] = append(list[:i:i], list[i+1:]...)
					break
				}
			}
		})
		b.restart()
		b.resume(q, rec)
		b.settle()
		require.Empty(b, b.ops()[ops:])
		require.Empty(b, b.paper.take())
		require.Equal(b, corev1.PodRunning, b.paper.report(q.UID).Status.Phase)
	})
}

// TestFirstSight: 3c "first update classification". What a worker does first
// depends on the record and on what runs.
func TestFirstSight(t *testing.T) {
	stop := func(del bool) *pod.Stop {
		return &pod.Stop{GraceSeconds: 7, Deadline: pod.Stamp{Boot: 7 * time.Second, BootID: "boot"}, Delete: del}
	}
	for _, c := range []struct {
		name     string
		record   pod.Record
		running  bool
		want     []string
		finished bool
	}{
		{name: "new (SL-4)", want: []string{"create-sandbox p", "look-up main:1", "create main", "start main"}},
		{name: "running already: adopted", running: true},
		{
			name: "termination under way goes on with its own deadline (RST-5)", running: true, record: pod.Record{Phase: pod.PhaseTerminating, Stop: stop(true)},
			want: []string{"stop main 7s", "stop-sandbox box-1", "remove main", "remove-sandbox box-1"}, finished: true,
		},
		{
			name: "asked to stop and not begun (PW-3)", running: true, record: pod.Record{Stop: stop(true)},
			want: []string{"stop main 7s", "stop-sandbox box-1", "remove main", "remove-sandbox box-1"}, finished: true,
		},
		{name: "terminating and never started", record: pod.Record{Phase: pod.PhaseTerminating, Stop: stop(true)}, finished: true},
		{
			name:   "ended by itself, with nothing left in the runtime (PW-12)",
			record: pod.Record{Phase: pod.PhaseTerminated, Stop: stop(false), Outcome: &pod.Outcome{Phase: corev1.PodSucceeded}},
		},
		{
			name: "ended, and yet something runs: down with it", running: true,
			record: pod.Record{Phase: pod.PhaseTerminated, Stop: stop(false), Outcome: &pod.Outcome{Phase: corev1.PodSucceeded}},
			want:   []string{"stop main 7s", "stop-sandbox box-1"},
		},
		{name: "finished: nothing to do", record: pod.Record{Phase: pod.PhaseFinished, Stop: stop(true)}, finished: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				p := newPod("p")
				b.present["main:1"] = true
				if c.running {
					b.make(p)
				}
				b.calls = nil
				b.resume(p, c.record)
				b.settle()
				require.ElementsMatch(b, c.want, b.ops())
				require.Equal(b, c.finished, len(b.paper.gone()) == 1)
			})
		})
	}
}

// TestEventsOfFailures: each failure is told under upstream's reason.
func TestEventsOfFailures(t *testing.T) {
	for _, c := range []struct {
		fails string
		err   error
		want  string
	}{
		{"create-sandbox", errors.New("no bridge"), "Warning FailedCreatePodSandBox : no bridge"},
		{"create-sandbox", pod.Errorf(pod.ClassNetwork, "", "no network"), "Warning NetworkNotReady : no network"},
		{"create", errors.New("bad config"), "Warning Failed main: Error: bad config"},
		{"start", errors.New("no such file"), "Warning Failed main: Error: no such file"},
		{"pull", pod.Errorf(pod.ClassNotFound, "ErrImagePull", "not there"), `Warning Failed main: Failed to pull image "main:1": not there`},
		{"pull", pod.Errorf(pod.ClassInvalid, "ErrImageNeverPull", "not there"), `Warning ErrImageNeverPull main: Failed to pull image "main:1": not there`},
		{"pull", pod.Errorf(pod.ClassInvalid, "InvalidImageName", "bad name"), `Warning InspectFailed main: Failed to pull image "main:1": bad name`},
	} {
		inBubble(t, func(b *bench) {
			b.fails[c.fails] = []error{c.err}
			p := newPod("web")
			b.start(p)
			b.settle()
			got := b.paper.take()
			require.Contains(b, got, c.want)
			require.Len(b, warnings(got), 1)
			time.Sleep(time.Minute)
			b.settle()
			require.Equal(b, "running", b.states(p.UID)["main"], c.want)
			require.Empty(b, warnings(b.paper.take()))
		})
	}
	inBubble(t, func(b *bench) {
		b.folders.fails = []error{errors.New("no such volume")}
		b.start(newPod("web"))
		b.settle()
		require.Contains(b, b.paper.take(), "Warning FailedMount : no such volume")
		time.Sleep(time.Minute)
		b.settle()
		require.Equal(b, 2, b.folders.setUps)
	})
}

func warnings(events []string) []string {
	var list []string
	for _, e := range events {
		if e[:4] == "Warn" {
			list = append(list, e)
		}
	}
	return list
}

// TestHostPorts: a port has one holder; the other pod waits, says for whom, and
// comes when the port is free.
func TestHostPorts(t *testing.T) {
	inBubble(t, func(b *bench) {
		c := container("main")
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
		first, second := newPod("first", c), newPod("second", c)
		box := b.start(first)
		b.settle()
		b.start(second)
		b.settle()
		require.Zero(b, b.did("create-sandbox", "second"))
		require.Contains(b, b.paper.take(), "Warning FailedCreatePodSandBox : cannot use port 8080: uid-first has it")
		why := b.paper.report(second.UID).Waits
		require.Contains(b, why, pod.Wait{Reason: "HostPortConflict", Message: "cannot use port 8080: uid-first has it"})
		box.PutStop(pod.StopRequest{Delete: true})
		time.Sleep(2 * time.Minute)
		b.settle()
		require.Equal(b, map[string]string{"main": "running"}, b.states(second.UID))
	})
}
