package events

import (
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

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog("nodelet", "edge")
		for i := range maxEvents + 10 {
			l.Add(Pod(web, ""), corev1.EventTypeNormal, "Step", strconv.Itoa(i))
		}
		require.Len(t, l.List(), maxEvents)
		require.Equal(t, "10", l.List()[0].Message, "the oldest go first")
		time.Sleep(maxAge + time.Minute)
		l.Add(Pod(web, ""), corev1.EventTypeNormal, "Step", "late")
		require.Len(t, l.List(), 1, "what is over an hour old goes")
	})
}
