package events

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var web = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"},
	Spec:       corev1.PodSpec{InitContainers: []corev1.Container{{Name: "prep"}}, Containers: []corev1.Container{{Name: "app"}}},
}

func named(name string) corev1.ObjectReference {
	return Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}, "")
}

func TestRepeatsAreCounted(t *testing.T) {
	l := NewLog("nodelet", "edge")
	for range 3 {
		l.Add(Pod(web, Container(&web.Spec, "app")), corev1.EventTypeWarning, "BackOff", "again")
	}
	l.Add(Pod(web, Container(&web.Spec, "prep")), corev1.EventTypeNormal, "Started", "Container started")
	list := l.List()
	require.Len(t, list, 2)
	require.Equal(t, int32(3), list[0].Count)
	require.Equal(t, "spec.containers{app}", list[0].InvolvedObject.FieldPath)
	require.Equal(t, "spec.initContainers{prep}", list[1].InvolvedObject.FieldPath)
	require.NotEqual(t, list[0].Name, list[1].Name)
}

// TestSimilarAreCombined: an object whose messages differ each time takes ten
// places and one more, not the whole log.
func TestSimilarAreCombined(t *testing.T) {
	l := NewLog("nodelet", "edge")
	for i := range 100 {
		l.Add(Pod(web, ""), corev1.EventTypeWarning, "Failed", "try "+strconv.Itoa(i))
	}
	l.Add(named("other"), corev1.EventTypeWarning, "Failed", "try 100")
	list := l.List()
	require.Len(t, list, maxSimilar+2)
	require.Equal(t, "try 9", list[9].Message)
	require.Equal(t, Combined+"try 99", list[10].Message)
	require.Equal(t, int32(90), list[10].Count)
	require.Equal(t, "try 100", list[11].Message)
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog("nodelet", "edge")
		for i := range maxEvents + 10 {
			l.Add(named(strconv.Itoa(i)), corev1.EventTypeNormal, "Step", "one")
		}
		require.Len(t, l.List(), maxEvents)
		require.Equal(t, "10", l.List()[0].InvolvedObject.Name, "the oldest go first")
		time.Sleep(maxAge + time.Minute)
		require.Empty(t, l.List(), "what is over an hour old is not shown")
		l.Add(Pod(web, ""), corev1.EventTypeNormal, "Step", "late")
		require.Len(t, l.List(), 1)
		require.Len(t, l.same, 1, "nor kept")
		require.Len(t, l.similar, 1)
	})
}

// TestSince: who watches gets each change once, and the newest state of what
// changed more than once meanwhile.
func TestSince(t *testing.T) {
	l := NewLog("nodelet", "edge")
	list, revision, next := l.Since(0)
	require.Empty(t, list)
	l.Add(named("a"), corev1.EventTypeNormal, "Pulling", "x")
	l.Add(named("b"), corev1.EventTypeNormal, "Pulling", "x")
	<-next
	list, revision, next = l.Since(revision)
	require.Len(t, list, 2)
	require.Equal(t, strconv.FormatUint(revision, 10), list[1].ResourceVersion)
	select {
	case <-next:
		require.Fail(t, "nothing happened since")
	default:
	}
	for range 5 {
		l.Add(named("a"), corev1.EventTypeNormal, "Pulling", "x")
	}
	<-next
	list, _, _ = l.Since(revision)
	require.Len(t, list, 1)
	require.Equal(t, int32(6), list[0].Count)
}

func TestContainerField(t *testing.T) {
	spec := &corev1.PodSpec{
		Containers:          []corev1.Container{{Name: "app"}},
		InitContainers:      []corev1.Container{{Name: "prep"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}
	for name, want := range map[string]string{
		"": "", "app": "spec.containers{app}", "prep": "spec.initContainers{prep}", "debug": "spec.ephemeralContainers{debug}",
	} {
		require.Equal(t, want, Container(spec, name))
		require.Equal(t, name, containerOf(want))
	}
}

// TestWeek: a week of crash loops, image failures and restarts of the agent, some
// of them without warning, with a disk that fails for hours, leaves no more
// behind than the bounds say.
func TestWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMemory()
		began := time.Now()
		for day := 0; time.Since(began) < 7*24*time.Hour; day++ {
			l, stop := running(t, k)
			for step := range 24 * 2 {
				k.setFull(day == 2 && step >= 20 && step < 24)
				for pod := range 20 {
					l.Add(named(fmt.Sprint("crash-", pod)), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container")
					l.Add(named(fmt.Sprint("pull-", pod)), corev1.EventTypeWarning, "Failed", fmt.Sprintf("no route to host, request %d", step))
				}
				for job := range 100 {
					l.Add(named(fmt.Sprintf("job-%d-%d-%d", day, step, job)), corev1.EventTypeNormal, "Started", "Container started")
				}
				time.Sleep(30 * time.Minute)
			}
			require.LessOrEqual(t, len(l.List()), maxEvents)
			bounded(t, l)
			stop()
			require.LessOrEqual(t, k.len(), maxEvents, "day %d", day)
		}
		require.Greater(t, k.len(), 20, "and not nothing")
	})
}

// bounded checks that nothing in a log grows with time.
func bounded(t *testing.T, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.LessOrEqual(t, l.order.Len(), maxEvents)
	require.Len(t, l.same, l.order.Len())
	require.LessOrEqual(t, len(l.unsaved), 2*maxEvents)
	require.LessOrEqual(t, len(l.kept), 2*maxEvents)
}
