package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// shows waits until nodelet itself shows so many ready pods.
func (a *agent) shows(ctx context.Context, n int) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", a.path("run", "nodelet.sock"))
	}}}
	defer client.CloseIdleConnections()
	return a.await(ctx, 5*pollFine, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nodelet/pods", http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, ctx.Err() // not there yet
		}
		defer func() { _ = resp.Body.Close() }()
		var list corev1.PodList
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if st := list.Items[i].Status; st.Phase == corev1.PodRunning && len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].Ready {
				ready++
			}
		}
		return ready == n, nil
	})
}
