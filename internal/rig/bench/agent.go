package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// readyWait bounds every wait for pods.
const readyWait = 3 * time.Minute

// agent is a nodelet under measurement.
type agent struct {
	bin, dir, endpoint string
	process            *exec.Cmd
	http               *http.Client
}

func newAgent(bin, dir, endpoint string) *agent {
	a := &agent{bin: bin, dir: dir, endpoint: endpoint}
	a.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", a.path("run", "nodelet.sock"))
	}}}
	return a
}

func (a *agent) path(elem ...string) string {
	return filepath.Join(append([]string{a.dir}, elem...)...)
}

func (a *agent) start(ctx context.Context) error {
	if err := os.MkdirAll(a.path("manifests"), 0o700); err != nil {
		return err
	}
	log, err := os.Create(a.path("log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	//nolint:noctx // it is ended in order, after the last measurement
	a.process = exec.Command(a.bin, "run", "--root-dir", a.path("root"), "--run-dir", a.path("run"), "--pod-logs-dir", a.path("logs"),
		"--static-pod-path", a.path("manifests"), "--runtime-endpoint", a.endpoint)
	a.process.Stdout, a.process.Stderr = log, log
	if err := a.process.Start(); err != nil {
		return err
	}
	return a.wait(ctx, func([]corev1.Pod) bool { return true })
}

func (a *agent) stop() error {
	if err := a.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return a.process.Wait()
}

// wait polls slowly, so that the waiting costs little of what is measured.
func (a *agent) wait(ctx context.Context, holds func([]corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nodelet/pods", http.NoBody)
		if err != nil {
			return err
		}
		var list corev1.PodList
		if resp, err := a.http.Do(req); err == nil {
			err = json.NewDecoder(resp.Body).Decode(&list)
			_ = resp.Body.Close()
			if err == nil && holds(list.Items) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pods are not as wanted: %w; see %s", ctx.Err(), a.path("log"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *agent) waitReady(ctx context.Context, n int) error {
	return a.wait(ctx, func(pods []corev1.Pod) bool {
		ready := 0
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodRunning && len(pods[i].Status.ContainerStatuses) > 0 && pods[i].Status.ContainerStatuses[0].Ready {
				ready++
			}
		}
		return ready == n && len(pods) == n
	})
}

func manifest(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: bench}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "nodelet.local/busybox:1", command: [sleep, infinity]}
`, name)
}

// apply renames the manifests of pods into place and returns when it began.
func (a *agent) apply(names ...string) (time.Time, error) {
	for _, name := range names {
		if err := os.WriteFile(a.path(name), []byte(manifest(name)), 0o600); err != nil {
			return time.Time{}, err
		}
	}
	began := time.Now()
	for _, name := range names {
		if err := os.Rename(a.path(name), a.path("manifests", name+".yaml")); err != nil {
			return began, err
		}
	}
	return began, nil
}

// clear removes all manifests and waits until the pods are gone.
func (a *agent) clear(ctx context.Context) error {
	files, err := filepath.Glob(a.path("manifests", "*.yaml"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return a.wait(ctx, func(pods []corev1.Pod) bool { return len(pods) == 0 })
}

// cpu returns the processor time that the agent has used.
func (a *agent) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// memory returns the resident and the anonymous memory of the agent in MB.
func (a *agent) memory() (resident, anonymous float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.process.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			resident = kb / 1024
		case "RssAnon:":
			anonymous = kb / 1024
		}
	}
	return resident, anonymous, nil
}
