package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nodelet.dev/nodelet/internal/events"
	"nodelet.dev/nodelet/internal/server"
)

// eventful is an agent with events.
type eventful struct {
	agent
	log *events.Log
}

func (a *eventful) EventsSince(revision uint64) (changed []corev1.Event, newest uint64, next <-chan struct{}) {
	return a.log.Since(revision)
}

func podRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}
}

// TestEventsSelected: a list knows the field selectors of Kubernetes.
func TestEventsSelected(t *testing.T) {
	a := &eventful{log: events.NewLog("nodelet", "edge")}
	a.log.Add(podRef("web"), corev1.EventTypeNormal, "Started", "x")
	a.log.Add(podRef("db"), corev1.EventTypeWarning, "BackOff", "x")
	for selector, want := range map[string][]string{
		"":                        {"web", "db"},
		"involvedObject.name=web": {"web"},
		"type=Warning,involvedObject.namespace=shop": {"db"},
		"reason!=BackOff":              {"web"},
		"involvedObject.namespace=aft": nil,
	} {
		code, _, body := get(t, a, "/events?"+url.Values{"fieldSelector": {selector}}.Encode())
		require.Equal(t, http.StatusOK, code)
		var list corev1.EventList
		require.NoError(t, json.Unmarshal([]byte(body), &list))
		require.Equal(t, "2", list.ResourceVersion)
		var names []string
		for _, e := range list.Items {
			names = append(names, e.InvolvedObject.Name)
		}
		require.Equal(t, want, names, selector)
	}
	for query, want := range map[string]string{
		"fieldSelector=a%3D%3D%3Db": "cannot read the field selector: ",
		"fieldSelector=color%3Dred": "cannot select events by \"color\"",
		"fieldSelector=nothing":     "cannot read the field selector: ",
		"resourceVersion=new":       "cannot read the resource version: ",
	} {
		code, _, body := get(t, a, "/events?"+query)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, body, want)
	}
}

// TestEventsWatched: a watch tells what comes after a revision, and ends with
// its client.
func TestEventsWatched(t *testing.T) {
	a := &eventful{log: events.NewLog("nodelet", "edge")}
	a.log.Add(podRef("old"), corev1.EventTypeNormal, "Started", "x")
	s := httptest.NewServer(server.Handler(a))
	t.Cleanup(s.Close)
	resp, err := http.Get(s.URL + "/events?watch=true&resourceVersion=1&fieldSelector=involvedObject.namespace%3Dshop")
	require.NoError(t, err)
	lines := bufio.NewScanner(resp.Body)
	next := func() server.WatchEvent {
		require.True(t, lines.Scan())
		var change server.WatchEvent
		require.NoError(t, json.Unmarshal(lines.Bytes(), &change))
		return change
	}
	a.log.Add(podRef("web"), corev1.EventTypeNormal, "Started", "x")
	first := next()
	require.Equal(t, watch.Added, first.Type)
	require.Equal(t, "web", first.Object.InvolvedObject.Name)
	a.log.Add(corev1.ObjectReference{Kind: "Node", Name: "edge"}, corev1.EventTypeNormal, "Starting", "not selected")
	a.log.Add(podRef("web"), corev1.EventTypeNormal, "Started", "x")
	second := next()
	require.Equal(t, watch.Modified, second.Type)
	require.Equal(t, int32(2), second.Object.Count)
	require.NoError(t, resp.Body.Close())
}
