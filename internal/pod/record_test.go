package pod_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// TestStopRequestMerge holds PW-6 and Q-4, whichever comes first.
func TestStopRequestMerge(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want pod.StopRequest }{
		"nothing asked":         {pod.StopRequest{}, pod.StopRequest{}, pod.StopRequest{}},
		"the smaller grace":     {pod.StopRequest{GraceSeconds: new(int64(9))}, pod.StopRequest{GraceSeconds: new(int64(4))}, pod.StopRequest{GraceSeconds: new(int64(4))}},
		"a given grace":         {pod.StopRequest{}, pod.StopRequest{GraceSeconds: new(int64(90))}, pod.StopRequest{GraceSeconds: new(int64(90))}},
		"deletion":              {pod.StopRequest{GraceSeconds: new(int64(3))}, pod.StopRequest{Delete: true}, pod.StopRequest{GraceSeconds: new(int64(3)), Delete: true}},
		"a reason with message": {pod.StopRequest{Message: "lost"}, pod.StopRequest{Reason: "Evicted", Message: "disk"}, pod.StopRequest{Reason: "Evicted", Message: "disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.a.Merge(c.b))
			require.Equal(t, c.want.GraceSeconds, c.b.Merge(c.a).GraceSeconds)
			require.Equal(t, c.want.Delete, c.b.Merge(c.a).Delete)
			require.Equal(t, c.want.Reason, c.b.Merge(c.a).Reason)
		})
	}
	first := pod.StopRequest{Reason: "Evicted", Message: "disk"}.Merge(pod.StopRequest{Reason: "Shutdown", Message: "late"})
	require.Equal(t, "Evicted disk", first.Reason+" "+first.Message, "the first reason stays")
}

// TestRecordClone holds that a record is a value.
func TestRecordClone(t *testing.T) {
	var r pod.Record
	require.Zero(t, r.Container("web"))
	r.SetContainer("web", pod.ContainerRecord{Attempts: 1})
	c := r.Clone()
	c.SetContainer("web", pod.ContainerRecord{Attempts: 2})
	c.SetContainer("db", pod.ContainerRecord{})
	require.EqualValues(t, 1, r.Container("web").Attempts)
	require.Len(t, r.Containers, 1)
	require.EqualValues(t, 2, c.Container("web").Attempts)
}

// TestRecordText holds which fields are durable and how they are spelled: a
// file of an older version must be read for ever (R37).
func TestRecordText(t *testing.T) {
	at := stamp("a", 0, time.Second)
	fail := &pod.Failure{Class: pod.ClassNotFound, Reason: "ErrImagePull", Message: "no", Key: "pull web:1", Count: 2, Since: at, Until: at}
	exit := &pod.Exit{ContainerID: "c", SandboxID: "s", Attempt: 1, ExitCode: 3, Reason: "Error", Message: "m", StartedAt: noon(), FinishedAt: noon(), At: at, Image: "i", ImageID: "d"}
	r := pod.Record{
		Phase: pod.PhaseTerminating, Started: at,
		Sandbox:     pod.SandboxRecord{Attempts: 2, IPs: []string{"10.0.0.1"}, Failure: fail, StopFailure: fail, Stopped: []string{"s"}, Announced: "s"},
		Initialized: pod.Initialization{SandboxID: "s", BootID: "a"},
		Containers: map[string]pod.ContainerRecord{"web": {
			Attempts: 2, Running: "c", RunningIn: "s", Exit: exit, Previous: exit, Replacing: "c",
			Backoff: pod.Backoff{Key: "k", Delay: time.Second, Updated: at, Charged: "c", Announced: "c"},
			Failure: fail, StopFailure: fail, Pulled: pod.Pulled{Image: "i"},
		}},
		Stop:       &pod.Stop{RequestedAt: at, GraceSeconds: 3, Deadline: at, Delete: true, Reason: "r", Message: "m"},
		RestartAll: &pod.RestartAll{Trigger: "web", TriggerID: "c", Started: at},
		Outcome:    &pod.Outcome{Phase: corev1.PodFailed, Reason: "r", Message: "m"},
		TornDown:   true, VolumesReady: true, VolumesFailure: fail,
	}
	const stampText = `{"wall":"2031-05-04T12:00:00Z","boot":1000000000,"bootID":"a"}`
	const failText = `{"class":2,"reason":"ErrImagePull","message":"no","key":"pull web:1","count":2,"since":` + stampText + `,"until":` + stampText + `}`
	const exitText = `{"containerID":"c","sandboxID":"s","attempt":1,"exitCode":3,"reason":"Error","message":"m",` +
		`"startedAt":"2031-05-04T12:00:00Z","finishedAt":"2031-05-04T12:00:00Z","at":` + stampText + `,"image":"i","imageID":"d"}`
	const text = `{"phase":1,"started":` + stampText + `,"sandbox":{"attempts":2,"ips":["10.0.0.1"],"failure":` + failText + `},` +
		`"initialized":{"sandboxID":"s","bootID":"a"},"containers":{"web":{"attempts":2,"running":"c","runningIn":"s","exit":` + exitText +
		`,"previous":` + exitText + `,"replacing":"c","backoff":{"key":"k","delay":1000000000,"updated":` + stampText +
		`,"charged":"c","announced":"c"},"failure":` + failText + `}},"stop":{"requestedAt":` + stampText + `,"graceSeconds":3,"deadline":` + stampText +
		`,"delete":true,"reason":"r","message":"m"},"restartAll":{"trigger":"web","triggerID":"c","started":` + stampText +
		`},"outcome":{"phase":"Failed","reason":"r","message":"m"},"tornDown":true}`
	got, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, text, string(got))

	var back pod.Record
	require.NoError(t, json.Unmarshal([]byte(text), &back))
	r.Sandbox.StopFailure, r.Sandbox.Stopped, r.Sandbox.Announced = nil, nil, ""
	web := r.Container("web")
	web.StopFailure, web.Pulled = nil, pod.Pulled{}
	r.SetContainer("web", web)
	r.VolumesReady, r.VolumesFailure = false, nil
	require.Equal(t, r, back)
}
