package probes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/probes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a manager in a bubble, with containers that answer as told.
type stage struct {
	testing.TB
	*probes.Manager
	pod   *corev1.Pod
	began time.Time

	mu       sync.Mutex // guards the fields below
	answers  map[string]func(ctx context.Context) (int, error)
	at       map[string][]time.Duration // when each command was run
	inFlight map[string]int
	most     int // in flight at one time
	running  int
	overlap  bool
	verdicts []string
	events   []string
	results  []string
}

func onStage(t *testing.T, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		s := &stage{
			TB: t, began: time.Now(), at: map[string][]time.Duration{}, inFlight: map[string]int{},
			answers: map[string]func(context.Context) (int, error){},
			pod:     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}},
		}
		s.Manager = probes.New(context.Background(), probes.Options{
			Execer: s,
			Event: func(_ *corev1.Pod, e probes.Event) {
				s.note(&s.events, fmt.Sprintf("%s %s: %s", e.Container, e.Reason, e.Message))
			},
			Observe: func(_ *corev1.Pod, container string, kind pod.ProbeKind, r probes.Result, _ time.Duration) {
				s.note(&s.results, fmt.Sprintf("%s %s %s", container, kind, r))
			},
		})
		test(s)
		s.Stop()
	})
}

func (s *stage) note(list *[]string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, text)
}

func (s *stage) take(list *[]string) []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := *list
	*list = nil
	return out
}

// PutVerdicts is the inbox.
func (s *stage) PutVerdicts(v pod.Verdicts) {
	s.note(&s.verdicts, fmt.Sprintf("%v %s %v/%v/%v", time.Since(s.began), v.ContainerID, v.Startup, v.Liveness, v.Readiness))
}

func (s *stage) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration, _ int) (output string, code int, err error) {
	name := id + " " + command[0]
	s.mu.Lock()
	s.at[name] = append(s.at[name], time.Since(s.began))
	s.inFlight[name]++
	s.running++
	s.most = max(s.most, s.running)
	s.overlap = s.overlap || s.inFlight[name] > 1
	answer := s.answers[command[0]]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight[name]--
		s.running--
	}()
	if answer == nil {
		return "", 0, nil
	}
	bound, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	code, err = answer(bound)
	if errors.Is(err, context.DeadlineExceeded) {
		err = pod.Errorf(pod.ClassDeadline, "", "late")
	}
	return "it says\n", code, err
}

func (s *stage) answer(name string, f func(ctx context.Context) (int, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = f
}

func (s *stage) code(name string, code int) {
	s.answer(name, func(context.Context) (int, error) { return code, nil })
}

func (s *stage) times(name string) []time.Duration {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[name]
}

func probe(command string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func target(id string, kind pod.ProbeKind, change ...func(*corev1.Probe)) pod.ProbeTarget {
	command := strings.ToLower(kind.String())
	c := &corev1.Container{Name: "main"}
	p := probe(command)
	for _, f := range change {
		f(p)
	}
	switch kind {
	case pod.Startup:
		c.StartupProbe = p
	case pod.Liveness:
		c.LivenessProbe = p
	case pod.Readiness:
		c.ReadinessProbe = p
	}
	return pod.ProbeTarget{Container: c, ContainerID: id, Kind: kind}
}

func secs(list ...float64) []time.Duration {
	var out []time.Duration
	for _, n := range list {
		out = append(out, time.Duration(n*float64(time.Second)))
	}
	return out
}

// TestSchedule: a probe runs at once and then every period; its verdict is told
// when it changes, and not before its threshold (PRB-3, PRB-4, PRB-12, PRB-27).
func TestSchedule(t *testing.T) {
	onStage(t, func(s *stage) {
		s.Set(s.pod, []pod.ProbeTarget{target("c1", pod.Readiness)}, s)
		time.Sleep(25 * time.Second)
		require.Equal(s, secs(0, 10, 20), s.times("c1 readiness"))
		require.Equal(s, []string{"0s c1 none/none/passed"}, s.take(&s.verdicts))
		s.code("readiness", 1)
		time.Sleep(30 * time.Second)
		require.Equal(s, []string{"50s c1 none/none/failed"}, s.take(&s.verdicts))
		require.Equal(s, []string{"main Unhealthy: Readiness probe failed: it says\n"}, s.take(&s.events)[:1])
		s.code("readiness", 0)
		time.Sleep(10 * time.Second)
		require.Equal(s, []string{"1m0s c1 none/none/passed"}, s.take(&s.verdicts))
		require.Equal(s, []string{"main Readiness successful", "main Readiness successful", "main Readiness successful", "main Readiness failed"}, s.take(&s.results)[:4])
	})
}

// TestInitialDelay: PRB-10. It counts from the start of the container, however
// long ago the agent learned of it.
func TestInitialDelay(t *testing.T) {
	onStage(t, func(s *stage) {
		one := target("c1", pod.Liveness, func(p *corev1.Probe) { p.InitialDelaySeconds, p.PeriodSeconds = 15, 7 })
		one.Age = 4 * time.Second
		s.Set(s.pod, []pod.ProbeTarget{one}, s)
		time.Sleep(20 * time.Second)
		require.Equal(s, secs(11, 18), s.times("c1 liveness"))
	})
}

// TestHold: a probe that has decided is not run again, not even when it is asked
// for once more; the next instance is probed anew, with a count of its own (PRB-7,
//
func TestHold(t *testing.T) {
	onStage(t, func(s *stage) {
		s.code("liveness", 1)
		s.code("startup", 1)
		first := []pod.ProbeTarget{target("c1", pod.Liveness), target("c1", pod.Startup)}
		s.Set(s.pod, first, s)
		time.Sleep(15 * time.Second)
		require.Empty(s, s.take(&s.verdicts))
		second := []pod.ProbeTarget{target("c2", pod.Liveness), target("c2", pod.Startup)}
		s.Set(s.pod, second, s)
		time.Sleep(15 * time.Second)
		require.Empty(s, s.take(&s.verdicts), "two failures of the first one are not charged to the second")
		time.Sleep(time.Minute)
		require.ElementsMatch(s, []string{"35s c2 none/failed/none", "35s c2 failed/none/none"}, s.take(&s.verdicts))
		s.Set(s.pod, second, s)
		time.Sleep(time.Minute)
		require.Equal(s, secs(15, 25, 35), s.times("c2 liveness"))
		require.Equal(s, secs(0, 10), s.times("c1 liveness"))

		s.code("startup", 0)
		s.Set(s.pod, []pod.ProbeTarget{target("c3", pod.Startup)}, s)
		time.Sleep(time.Minute)
		require.Len(s, s.times("c3 startup"), 1)
		require.Equal(s, 1, s.Len())
		s.Set(s.pod, nil, s)
		require.Zero(s, s.Len())
	})
}

// TestAgentRestart: INV-10, PRB-3. What was known holds until a threshold is
// reached, and the first turns are spread over a period. What is waited for is
// asked at once.
func TestAgentRestart(t *testing.T) {
	onStage(t, func(s *stage) {
		inherited := func(id string, kind pod.ProbeKind, known pod.Verdict) pod.ProbeTarget {
			one := target(id, kind)
			one.Inherited, one.Known = true, known
			return one
		}
		var targets []pod.ProbeTarget
		for i := range 200 {
			targets = append(targets, inherited(fmt.Sprint("r", i), pod.Readiness, pod.Passed))
		}
		s.code("readiness", 1)
		s.Set(s.pod, targets, s)
		time.Sleep(10 * time.Second)
		early := 0
		for i := range 200 {
			at := s.times(fmt.Sprint("r", i, " readiness"))
			require.NotEmpty(s, at)
			require.Less(s, at[0], 10*time.Second)
			if at[0] < 5*time.Second {
				early++
			}
		}
		require.InDelta(s, 100, early, 50)
		time.Sleep(9 * time.Second)
		require.Empty(s, s.take(&s.verdicts), "two failures at most so far")
		time.Sleep(11 * time.Second)
		require.Len(s, s.take(&s.verdicts), 200)
		s.Set(s.pod, []pod.ProbeTarget{
			inherited("a", pod.Readiness, pod.NoVerdict), inherited("b", pod.Startup, pod.NoVerdict), inherited("c", pod.Readiness, pod.Failed),
		}, s)
		require.Equal(s, secs(30), s.times("a readiness"))
		require.Equal(s, secs(30), s.times("b startup"))
		time.Sleep(10 * time.Second)
		require.NotContains(s, strings.Join(s.take(&s.verdicts), "\n"), " c ", "what is known to be sick never flashes")
	})
}

// TestStuck: a command that hangs is a failure at its timeout; the same probe does
// not run twice at a time, and turns that it overlaps are lost, not made up for.
func TestStuck(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answer("readiness", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		one := target("c1", pod.Readiness, func(p *corev1.Probe) { p.TimeoutSeconds, p.PeriodSeconds, p.FailureThreshold = 5, 2, 2 })
		one.Known = pod.Passed
		s.Set(s.pod, []pod.ProbeTarget{one}, s)
		time.Sleep(14 * time.Second)
		require.Equal(s, secs(0, 6, 12), s.times("c1 readiness"))
		require.Equal(s, []string{"11s c1 none/none/failed"}, s.take(&s.verdicts))
		require.Contains(s, s.take(&s.events)[0], `Readiness probe failed: command timed out: "readiness" timed out after 5s`)
		require.False(s, s.overlap)
	})
}

// TestOutage: a runtime that is away is no failure, whatever it lasts, and is not
// told on each pod; a command that cannot be run is tried three times in a turn,
// told, and does not count either (PRB-13).
func TestOutage(t *testing.T) {
	onStage(t, func(s *stage) {
		s.Set(s.pod, []pod.ProbeTarget{target("c1", pod.Readiness), target("c1", pod.Liveness)}, s)
		synctest.Wait()
		require.Equal(s, []string{"0s c1 none/none/passed", "0s c1 none/passed/none"}, sorted(s.take(&s.verdicts)))
		away := func(context.Context) (int, error) { return 0, pod.Errorf(pod.ClassUnavailable, "", "away") }
		s.answer("readiness", away)
		s.answer("liveness", away)
		before := len(s.times("c1 readiness"))
		time.Sleep(time.Hour)
		require.Empty(s, s.take(&s.verdicts))
		require.Empty(s, s.take(&s.events))
		require.Len(s, s.times("c1 readiness"), before+360, "one try in each turn")

		s.answer("readiness", func(context.Context) (int, error) { return 0, errors.New("no such program") })
		before = len(s.times("c1 readiness"))
		time.Sleep(time.Minute)
		require.Len(s, s.times("c1 readiness"), before+18)
		require.Empty(s, s.take(&s.verdicts))
		events := s.take(&s.events)
		require.Len(s, events, 6)
		require.Equal(s, "main Unhealthy: Readiness probe errored and resulted in unknown state: no such program", events[0])

		tries := 0
		s.answer("readiness", func(context.Context) (int, error) {
			if tries++; tries%3 != 0 {
				return 0, errors.New("a passing fault")
			}
			return 0, nil
		})
		time.Sleep(time.Minute)
		require.Empty(s, s.take(&s.events), "the third try worked")
	})
}

func sorted(list []string) []string {
	if len(list) == 2 && list[0] > list[1] {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// TestCancel: what is not asked for any more ends at once and says nothing; asked
// for again, it begins when the turn before has ended.
func TestCancel(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answer("readiness", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // the runtime takes its time
			return 1, nil
		})
		one := []pod.ProbeTarget{target("c1", pod.Readiness, func(p *corev1.Probe) { p.TimeoutSeconds, p.FailureThreshold = 60, 1 })}
		s.Set(s.pod, one, s)
		time.Sleep(time.Second)
		s.Set(s.pod, nil, s)
		require.Equal(s, 1, s.Len(), "until its turn has ended")
		time.Sleep(time.Second)
		s.code("readiness", 0)
		s.Set(s.pod, one, s)
		time.Sleep(10 * time.Second)
		require.Equal(s, secs(0, 4), s.times("c1 readiness"))
		require.False(s, s.overlap)
		require.Equal(s, []string{"4s c1 none/none/passed"}, s.take(&s.verdicts))
		require.Empty(s, s.take(&s.events))
		s.Set(s.pod, nil, s)
		synctest.Wait()
		require.Zero(s, s.Len())
	})
}

// TestStop: the manager waits for what is in flight, and begins nothing any more.
func TestStop(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answer("readiness", func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil })
		one := []pod.ProbeTarget{target("c1", pod.Readiness, func(p *corev1.Probe) { p.TimeoutSeconds, p.FailureThreshold = 60, 1 })}
		s.Set(s.pod, one, s)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second)
		cancel()
		require.NoError(s, <-ended)
		require.Empty(s, s.take(&s.verdicts), "one that was cut off says nothing")
		s.Set(s.pod, []pod.ProbeTarget{target("c2", pod.Readiness)}, s)
		time.Sleep(time.Minute)
		require.Empty(s, s.times("c2 readiness"))
	})
}

// TestLimit: DESIGN rule 9. Not everything at once, and no failure for waiting.
func TestLimit(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answer("readiness", func(context.Context) (int, error) { time.Sleep(100 * time.Millisecond); return 0, nil })
		var targets []pod.ProbeTarget
		for i := range 1000 {
			targets = append(targets, target(fmt.Sprint("c", i), pod.Readiness))
		}
		s.Set(s.pod, targets, s)
		time.Sleep(9 * time.Second)
		require.Len(s, s.take(&s.verdicts), 1000)
		require.Equal(s, 128, s.most)
	})
}

// TestLongWords: an event is bounded.
func TestLongWords(t *testing.T) {
	onStage(t, func(s *stage) {
		s.answer("readiness", func(context.Context) (int, error) { return 0, errors.New(strings.Repeat("ä", 5000)) })
		s.Set(s.pod, []pod.ProbeTarget{target("c1", pod.Readiness)}, s)
		synctest.Wait()
		events := s.take(&s.events)
		require.Len(s, events, 1)
		require.LessOrEqual(s, len(events[0]), 1024+len("main Unhealthy: "))
		require.True(s, strings.HasSuffix(events[0], "ä"))
	})
}
