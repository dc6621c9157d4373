package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// fleet is a whole agent over a unix socket, with files and all, in real time.
type fleet struct {
	*testing.T
	cri       *fakecri.Server
	cfg       config.Configuration
	manifests string

	a      *Agent
	cancel context.CancelFunc
	ended  chan error
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	// Sockets live in it, so its path must be short.
	dir, err := os.MkdirTemp("/tmp", "nl") //nolint:usetesting // t.TempDir is too long for a unix socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	f := &fleet{T: t, cri: fakecri.New(fakecri.Options{PullAny: true, Programs: programs()}), cfg: config.Default(), manifests: filepath.Join(dir, "manifests")}
	socket := filepath.Join(dir, "cri.sock")
	require.NoError(t, f.cri.Listen(socket))
	t.Cleanup(func() {
		if f.cancel != nil { // the test failed, and the runtime waits for its clients
			f.cancel()
			require.NoError(t, <-f.ended)
		}
		f.cri.Close()
	})
	require.NoError(t, os.Mkdir(f.manifests, 0o700))
	f.cfg.RootDirectory, f.cfg.RunDirectory, f.cfg.PodLogsDir = filepath.Join(dir, "root"), filepath.Join(dir, "run"), filepath.Join(dir, "logs")
	f.cfg.StaticPodPath, f.cfg.ContainerRuntimeEndpoint = f.manifests, "unix://"+socket
	f.cfg.NodeName, f.cfg.RegistryPullQPS = "edge", new(int32(0))
	f.cfg.RuntimeRequestTimeout = metav1.Duration{Duration: 2 * time.Second}
	return f
}

// programs are what containers run, by name.
func programs() map[string]fakecri.Program {
	flaky := func(_ context.Context, p *fakecri.Process) int {
		if p.Attempt == 0 {
			return 1
		}
		<-p.Terminated()
		return 0
	}
	return map[string]fakecri.Program{
		"flaky": flaky,
		"once":  func(_ context.Context, p *fakecri.Process) int { p.Sleep(300 * time.Millisecond); return 0 },
		"fails": func(_ context.Context, p *fakecri.Process) int { p.Sleep(300 * time.Millisecond); return 4 },
	}
}

func (f *fleet) start() {
	f.Helper()
	var a *Agent
	// A process that another test starts at this moment may have the last agent's
	// lock open for as long as it takes to become another program.
	require.Eventually(f, func() bool {
		var err error
		a, err = New(f.cfg, "v0")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	f.a, f.cancel, f.ended = a, cancel, make(chan error, 1)
	ready := make(chan struct{})
	go func() { f.ended <- a.Run(ctx, func() { close(ready) }) }()
	<-ready
}

func (f *fleet) stop() {
	f.Helper()
	f.cancel()
	f.cancel = nil
	require.NoError(f, <-f.ended)
}

func (f *fleet) write(p *corev1.Pod) {
	f.Helper()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := yaml.Marshal(p)
	require.NoError(f, err)
	temp := filepath.Join(filepath.Dir(f.manifests), p.Name)
	require.NoError(f, os.WriteFile(temp, text, 0o600))
	require.NoError(f, os.Rename(temp, filepath.Join(f.manifests, p.Name+".yaml")))
}

// eventually waits until every pod is where it should be.
func (f *fleet) eventually(what string, wrong func() string) {
	f.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		text := wrong()
		if text == "" {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(f, "it never came: "+what, "%s\n%s", text, f.cri.Snapshot())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// kinds are what the pods of the fleet are like; %d in a name is a number.
func kinds() []*corev1.Pod {
	long := func(names ...string) []corev1.Container {
		var list []corev1.Container
		for _, name := range names {
			list = append(list, corev1.Container{Name: name, Image: "app:1"})
		}
		return list
	}
	made := func(name string, policy corev1.RestartPolicy, inits, mains []corev1.Container) *corev1.Pod {
		p := newPod(name + "-%d")
		p.Spec.RestartPolicy, p.Spec.InitContainers, p.Spec.Containers = policy, inits, mains
		p.Spec.TerminationGracePeriodSeconds = new(int64(2))
		return p
	}
	sidecar := long("proxy")
	sidecar[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return []*corev1.Pod{
		made("plain", corev1.RestartPolicyAlways, nil, long("main")),
		made("pair", corev1.RestartPolicyAlways, nil, long("main", "side")),
		made("init", corev1.RestartPolicyAlways, long("once"), long("main")),
		made("sidecar", corev1.RestartPolicyAlways, append(sidecar, long("once")...), long("main")),
		made("job", corev1.RestartPolicyNever, nil, long("once")),
		made("lost", corev1.RestartPolicyNever, nil, long("fails")),
		made("sidejob", corev1.RestartPolicyOnFailure, sidecar, long("once")),
		made("flaky", corev1.RestartPolicyAlways, nil, long("flaky")),
	}
}

// goal returns the phase that a pod of a kind comes to.
func goal(name string) corev1.PodPhase {
	switch kind, _, _ := strings.Cut(name, "-"); kind {
	case "job", "sidejob":
		return corev1.PodSucceeded
	case "lost":
		return corev1.PodFailed
	}
	return corev1.PodRunning
}

// wrong tells which pod is not where it should be: there, in its phase, ready, and
// with the image that its first container should have by now.
func (f *fleet) wrong(want map[string]string) string {
	var text []string
	left := maps.Clone(want)
	list := f.a.Pods()
	for i := range list.Items {
		p := &list.Items[i]
		delete(left, p.Name)
		ready := p.Status.Phase != corev1.PodRunning
		for _, c := range p.Status.Conditions {
			ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		for _, c := range p.Status.ContainerStatuses {
			ready = ready && (c.Name != p.Spec.Containers[0].Name || strings.HasSuffix(c.Image, want[p.Name]))
		}
		if want[p.Name] == "" || p.DeletionTimestamp != nil || p.Status.Phase != goal(p.Name) || !ready {
			text = append(text, fmt.Sprintf("%s is %s %s %s", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message))
		}
	}
	for name := range left {
		text = append(text, name+" is missing")
	}
	return strings.Join(text, "\n")
}

// inject adds faults of all kinds, a different mix for each seed.
func (f *fleet) inject(random *rand.Rand) {
	rpcs := []string{
		"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox",
		"ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus", "ImageStatus", "Event",
	}
	modes := []fakecri.Mode{fakecri.FailBefore, fakecri.FailAfter, fakecri.Late, fakecri.HangBefore, fakecri.HangAfter, fakecri.Slow}
	for _, rpc := range rpcs {
		for range 3 {
			fault := fakecri.Fault{
				RPC: rpc, Mode: modes[random.IntN(len(modes))], Nth: 1 + random.IntN(20), Times: 1 + random.IntN(3),
				Delay: time.Duration(random.IntN(1500)) * time.Millisecond,
			}
			if rpc == "Event" {
				fault.Mode = fakecri.FailBefore
			}
			f.cri.Inject(fault)
		}
	}
}

// check holds the journal of the runtime against what must be true at every
// moment.
func (f *fleet) check() {
	f.Helper()
	seen := map[fakecri.ContainerKey]string{}
	for _, c := range f.cri.Calls() {
		if c.RPC == "CreateContainer" {
			seen[fakecri.ContainerKey{UID: c.UID, Name: c.Container}] = c.Pod
			require.LessOrEqual(f, f.cri.Starts(fakecri.AttemptKey{UID: c.UID, Name: c.Container, Attempt: c.Attempt}), 1, "%s %s", c.Pod, c.Container)
		}
	}
	for key, name := range seen {
		require.LessOrEqual(f, f.cri.MaxRunning(key), 1, "INV-1: %s %s", name, key.Name)
		if key.Name == "once" || key.Name == "fails" {
			require.LessOrEqual(f, f.cri.TotalStarts(key), 1, "INV-7: %s %s", name, key.Name)
		}
	}
}

// TestFleet: many pods of many kinds through faults of every kind and agents that
// come and go; in the end all are where they should be, and nothing ran twice.
func TestFleet(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			f, random := newFleet(t), rand.New(rand.NewPCG(seed, 0))
			want := map[string]string{}
			for i := range 5 {
				for _, p := range kinds() {
					p.Name = fmt.Sprintf(p.Name, i)
					want[p.Name] = "app:1"
					f.write(p)
				}
			}
			f.start()
			for range 4 {
				f.inject(random)
				time.Sleep(time.Duration(1000+random.IntN(2000)) * time.Millisecond)
				f.stop()
				f.start()
			}
			// Some leave and some are changed while the agent is busy.
			for i, p := range kinds() {
				name := fmt.Sprintf(p.Name, 0)
				require.NoError(t, os.Remove(filepath.Join(f.manifests, name+".yaml")))
				delete(want, name)
				if goal(p.Name) == corev1.PodRunning && i%2 == 0 {
					p.Name = fmt.Sprintf(p.Name, 1)
					p.Spec.Containers[0].Image = "app:2"
					want[p.Name] = "app:2"
					f.write(p)
				}
			}
			f.inject(random)
			time.Sleep(3 * time.Second)
			f.cri.ClearFaults()
			f.eventually("the fleet is at its goals", func() string { return f.wrong(want) })
			f.check()
			f.stop()

			// Another one finds all as it is and changes nothing.
			started := len(f.cri.Calls())
			f.start()
			f.eventually("the fleet is at its goals", func() string { return f.wrong(want) })
			time.Sleep(3 * time.Second)
			for _, c := range f.cri.Calls()[started:] {
				require.NotContains(t, []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"}, c.RPC, c.Pod)
			}
			for name := range want {
				require.NoError(t, os.Remove(filepath.Join(f.manifests, name+".yaml")))
			}
			f.eventually("the fleet is gone", func() string { return f.wrong(nil) + f.cri.Snapshot().String() })
			f.check()
			f.stop()
			left, err := os.ReadDir(filepath.Join(f.cfg.RootDirectory, "pods"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestSecondAgent: an agent on the same root is refused while another
// works, and nothing is disturbed.
func TestSecondAgent(t *testing.T) {
	f := newFleet(t)
	f.write(newPod("plain-0"))
	f.start()
	defer f.stop()
	f.eventually("it runs", func() string { return f.wrong(map[string]string{"plain-0": "app:1"}) })
	_, err := New(f.cfg, "v0")
	require.ErrorContains(t, err, strconv.Itoa(os.Getpid()))
	require.Empty(t, f.wrong(map[string]string{"plain-0": "app:1"}))
	text, err := json.Marshal(f.a.Status(context.Background()))
	require.NoError(t, err)
	require.Contains(t, string(text), `"sources":[{"name":"file"`)
}

// TestFirstAnswer: an agent that answers shows every pod that it had before.
func TestFirstAnswer(t *testing.T) {
	f, want := newFleet(t), map[string]string{}
	for i := range 20 {
		p := newPod(fmt.Sprintf("plain-%d", i))
		want[p.Name] = "app:1"
		f.write(p)
	}
	f.start()
	f.eventually("all run", func() string { return f.wrong(want) })
	f.stop()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(f.cfg.RunDirectory, SocketName))
	}}}
	t.Cleanup(client.CloseIdleConnections)
	first := make(chan int, 1)
	go func() {
		for {
			resp, err := client.Get("http://agent/pods")
			if err != nil {
				continue // not there yet
			}
			var list corev1.PodList
			err = errors.Join(json.NewDecoder(resp.Body).Decode(&list), resp.Body.Close())
			if err != nil {
				first <- -1
				return
			}
			first <- len(list.Items)
			return
		}
	}()
	f.start()
	require.Equal(t, len(want), <-first)
	f.stop()
}
