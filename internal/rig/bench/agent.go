package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// readyWait bounds every wait for pods.
const readyWait = 5 * time.Minute

// agent is a node agent under measurement: a program that runs the pods of a
// directory of manifests.
type agent struct {
	subject string
	dir     string
	args    []string
	// tidy says that a removed pod leaves no sandbox behind.
	tidy    bool
	files   map[string]string // what it needs, by path below dir
	process *exec.Cmd
}

// newNodelet returns nodelet with a limit of pods that no measurement reaches.
func newNodelet(bin, dir, endpoint string) *agent {
	a := &agent{subject: subjectNodelet, dir: dir, tidy: true, files: map[string]string{
		"config.yaml": "apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\nmaxPods: 10000\n",
	}}
	a.args = []string{
		bin, "run", "--config", a.path("config.yaml"), "--root-dir", a.path("root"), "--run-dir", a.path("run"),
		"--pod-logs-dir", a.path("logs"), "--static-pod-path", a.path("manifests"), "--runtime-endpoint", endpoint,
	}
	return a
}

// newKubelet returns a kubelet without an API server, as lean as its settings
// allow: no server, no evictions, no cgroups of its own.
func newKubelet(bin, dir, endpoint string) *agent {
	a := &agent{subject: subjectKubelet, dir: dir}
	a.files = map[string]string{"config.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
fileCheckFrequency: 20s
containerRuntimeEndpoint: %s
podLogsDir: %s
enableServer: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
maxPods: 10000
localStorageCapacityIsolation: false
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
registryPullQPS: 0
`, a.path("manifests"), endpoint, a.path("logs"))}
	a.args = []string{bin, "--config", a.path("config.yaml"), "--root-dir", a.path("root"), "--cert-dir", a.path("pki"), "--hostname-override", "bench"}
	return a
}

func (a *agent) path(elem ...string) string {
	return filepath.Join(append([]string{a.dir}, elem...)...)
}

func (a *agent) pid() int { return a.process.Process.Pid }

// start starts the agent; when it is ready shows in what it does.
func (a *agent) start(context.Context) error {
	if err := os.MkdirAll(a.path("manifests"), 0o700); err != nil {
		return err
	}
	for name, text := range a.files {
		if err := os.WriteFile(a.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(a.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	a.process = exec.Command(a.args[0], a.args[1:]...) //nolint:noctx // it is ended in order, after the last measurement
	a.process.Stdout, a.process.Stderr = log, log
	return a.process.Start()
}

func (a *agent) stop() error {
	if err := a.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := a.process.Wait(); err != nil {
		return fmt.Errorf("%s did not end well: %w", a.subject, err)
	}
	return nil
}

// manifest is a pod whose program ends when it is told to.
func manifest(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: bench}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: "nodelet.local/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"]}
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

// clear removes all manifests and returns when it began.
func (a *agent) clear() (time.Time, error) {
	files, err := filepath.Glob(a.path("manifests", "*.yaml"))
	if err != nil {
		return time.Time{}, err
	}
	began := time.Now()
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return began, err
		}
	}
	return began, nil
}

// await polls until something holds, slowly, so that the waiting costs little of
// what is measured.
func (a *agent) await(ctx context.Context, every time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pods of %s are not as wanted: %w; see %s", a.subject, ctx.Err(), a.path("log"))
		case <-time.After(every):
		}
	}
}
