package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/rig"
	"nodelet.dev/nodelet/runtime"
)

// patience bounds what a loaded machine may need; nothing asserts a shorter time.
const patience = time.Minute

// calls counts the calls of a client by name.
type calls struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *calls) observe(op string, _ time.Duration, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[op]++
}

func (c *calls) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	c.counts = map[string]int{}
	return out
}

// onRig is a client of a private containerd.
type onRig struct {
	*runtime.Client
	containerd *rig.Containerd
	calls      *calls
	logs       string
	links      string
}

// newRig starts a containerd and connects to it.
func newRig(t *testing.T, flavor rig.Flavor) onRig {
	t.Helper()
	return connect(t, rig.ForTest(t, flavor))
}

// flavors are the builds of containerd that each test runs against.
func flavors() []rig.Flavor { return []rig.Flavor{rig.Debian, rig.V2} }

func connect(t *testing.T, containerd *rig.Containerd) onRig {
	t.Helper()
	r := onRig{containerd: containerd, calls: &calls{counts: map[string]int{}}, logs: t.TempDir(), links: t.TempDir()}
	r.Client = runtime.New(runtime.Options{
		RuntimeEndpoint: containerd.Address(), PodLogsDir: r.logs, ContainerLogLinksDir: r.links,
		NodeName: "node-1", HostIPs: []string{"192.0.2.1"}, MinOOMScoreAdj: 1000, Observe: r.calls.observe,
	})
	run(t, r.Client)
	return r
}

// run runs a client until the test ends and waits until it is connected.
func run(t *testing.T, c *runtime.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	wait, done := context.WithTimeout(t.Context(), patience)
	defer done()
	require.NoError(t, c.Connect(wait))
}

func newPod(name string, containers ...corev1.Container) *corev1.Pod {
	for i := range containers {
		if containers[i].Image == "" {
			containers[i].Image = rig.BusyboxImage
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: containers, DNSPolicy: corev1.DNSDefault, RestartPolicy: corev1.RestartPolicyNever},
	}
}

func shell(name, script string) corev1.Container {
	return corev1.Container{Name: name, Command: []string{"sh", "-c", script}, ImagePullPolicy: corev1.PullNever}
}

// start makes the sandbox of a pod and starts its containers.
func (r onRig) start(t *testing.T, p *corev1.Pod) (sandbox pod.Sandbox, ids map[string]string) {
	t.Helper()
	ctx := t.Context()
	_, err := r.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p, SpecHash: pod.SpecHash(p)})
	require.NoError(t, err)
	o, err := r.Inspect(ctx, p.UID)
	require.NoError(t, err)
	sandbox, ok := o.Newest()
	require.True(t, ok)
	ids = map[string]string{}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		image, err := r.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: c})
		require.NoError(t, err)
		id, err := r.CreateContainer(ctx, runtime.ContainerRequest{Pod: p, Name: c.Name, Sandbox: sandbox, ImageRef: image.Ref, SpecHash: pod.SpecHash(p)})
		require.NoError(t, err)
		require.NoError(t, r.StartContainer(ctx, id))
		ids[c.Name] = id
	}
	return sandbox, ids
}

// eventually inspects a pod until it looks as wanted.
func (r onRig) eventually(t *testing.T, uid types.UID, wanted func(pod.Observation) bool) pod.Observation {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		o, err := r.Inspect(t.Context(), uid)
		if err == nil && wanted(o) {
			return o
		}
		if time.Now().After(deadline) {
			t.Fatalf("pod %s does not get there: %+v, error %v", uid, o, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func exited(name string) func(pod.Observation) bool {
	return func(o pod.Observation) bool {
		c, ok := o.Latest(name)
		return ok && c.State == pod.StateExited
	}
}

func TestRealPodLife(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			ctx := t.Context()
			p := newPod("life", shell("main", `echo "hello $WHO from $IP"; exit 3`), shell("side", "sleep 1000"))
			p.Annotations = map[string]string{pod.SourceAnnotation: "file", pod.OriginAnnotation: "/m/life.yaml"}
			p.Spec.TerminationGracePeriodSeconds = new(int64(7))
			p.Spec.Containers[0].Env = []corev1.EnvVar{
				{Name: "A", Value: "wor"},
				{Name: "WHO", Value: "$(A)ld"},
				{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			}
			sandbox, ids := r.start(t, p)
			require.True(t, sandbox.Ready)
			require.False(t, sandbox.HostNetwork)
			require.Len(t, sandbox.IPs, 1)
			require.Equal(t, pod.Identity{
				UID: p.UID, Key: pod.KeyOf(p), Spec: pod.SpecHash(p), GraceSeconds: 7, Source: "file", Origin: "/m/life.yaml",
			}, sandbox.Identity)

			o := r.eventually(t, p.UID, exited("main"))
			main, _ := o.Latest("main")
			require.EqualValues(t, 3, main.ExitCode)
			require.Equal(t, "Error", main.Reason)
			require.Equal(t, pod.KindNormal, main.Kind)
			require.Equal(t, rig.BusyboxImage, main.Image)
			require.NotEmpty(t, main.ImageID)
			require.Equal(t, pod.ContainerHash(&p.Spec.Containers[0]), main.Hash)
			require.False(t, main.StartedAt.IsZero())
			require.False(t, main.FinishedAt.Before(main.StartedAt))
			require.Equal(t, filepath.Join(r.logs, "shop_life_uid-life", "main", "0.log"), main.LogPath)
			text, err := os.ReadFile(main.LogPath)
			require.NoError(t, err)
			require.Contains(t, string(text), "hello world from "+sandbox.IPs[0])
			link, err := os.Readlink(filepath.Join(r.links, "life_shop_main-"+main.ID+".log"))
			require.NoError(t, err)
			require.Equal(t, main.LogPath, link)

			// A pod that does not change costs two list calls.
			r.calls.take()
			again, err := r.Inspect(ctx, p.UID)
			require.NoError(t, err)
			require.Equal(t, map[string]int{"ListPodSandbox": 1, "ListContainers": 1}, r.calls.take())
			again.TakenAt = o.TakenAt
			require.Equal(t, o, again)

			// The attempt is the compare-and-swap token.
			_, err = r.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p})
			require.Equal(t, pod.ClassExists, pod.ClassOf(err), "%v", err)
			_, err = r.CreateContainer(ctx, runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: sandbox, ImageRef: main.ImageID})
			require.Equal(t, pod.ClassExists, pod.ClassOf(err), "%v", err)

			// The escalation ends a container without the runtime's help.
			require.NoError(t, r.KillContainer(ctx, ids["side"]))
			o = r.eventually(t, p.UID, exited("side"))
			side, _ := o.Latest("side")
			require.EqualValues(t, 137, side.ExitCode)
			require.NoError(t, r.KillContainer(ctx, ids["side"]), "what has ended counts as killed")

			for range 2 { // the second time finds nothing, which is as good
				require.NoError(t, r.RemoveContainer(ctx, main.ID))
				require.NoError(t, r.StopSandbox(ctx, sandbox.ID))
				require.NoError(t, r.RemoveSandbox(ctx, sandbox.ID))
				require.NoError(t, r.StopContainer(ctx, main.ID, time.Second))
				require.NoError(t, r.KillContainer(ctx, main.ID))
			}
			require.NoFileExists(t, filepath.Join(r.links, "life_shop_main-"+main.ID+".log"))
			require.FileExists(t, main.LogPath)
			listing, err := r.List(ctx)
			require.NoError(t, err)
			require.Empty(t, listing.Pods)
		})
	}
}

func TestRealListing(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			ctx := t.Context()
			a, b := newPod("a", shell("main", "sleep 1000")), newPod("b", shell("main", "sleep 1000"))
			sandbox, _ := r.start(t, a)
			r.start(t, b)
			listing, err := r.List(ctx)
			require.NoError(t, err)
			require.Len(t, listing.Pods, 2)
			require.Empty(t, listing.Foreign)
			for _, p := range []*corev1.Pod{a, b} {
				o := listing.Pods[p.UID]
				inspected, err := r.Inspect(ctx, p.UID)
				require.NoError(t, err)
				inspected.TakenAt = o.TakenAt
				require.Equal(t, inspected, o, "the details are known by now")
			}
			require.NoError(t, r.StopSandbox(ctx, sandbox.ID))
			o := r.eventually(t, a.UID, func(o pod.Observation) bool { return !o.Live() })
			require.Empty(t, o.Sandboxes[0].IPs)
			require.NoError(t, r.RemoveSandbox(ctx, sandbox.ID))
			listing, err = r.List(ctx)
			require.NoError(t, err)
			require.Len(t, listing.Pods, 1)
			status, err := r.Status(ctx)
			require.NoError(t, err)
			require.Equal(t, "containerd", status.Name)
			require.NotEmpty(t, status.Version)
			require.True(t, status.RuntimeReady)
			require.True(t, status.NetworkReady)
			if r.containerd.Flavor() == rig.Debian {
				require.Equal(t, rig.PauseImage, status.SandboxImage)
			}
			require.Equal(t, runtime.EventsNone, status.Events)
		})
	}
}

// hints follows events until the test ends and keeps them.
type hints struct {
	mu   sync.Mutex
	seen []runtime.Hint
}

func (h *hints) has(wanted runtime.Hint) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.seen, wanted)
}

func follow(t *testing.T, c *runtime.Client) (*hints, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := make(chan runtime.Hint)
	broke := make(chan error, 1)
	seen := &hints{}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		broke <- c.Events(ctx, out)
		close(out)
	})
	tasks.Go(func() {
		for hint := range out {
			seen.mu.Lock()
			seen.seen = append(seen.seen, hint)
			seen.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	return seen, broke
}

func TestRealEvents(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			seen, broke := follow(t, r.Client)
			source := map[rig.Flavor]string{rig.Debian: runtime.EventsContainerd, rig.V2: runtime.EventsCRI}[r.containerd.Flavor()]
			require.Eventually(t, func() bool {
				status, err := r.Status(t.Context())
				return err == nil && status.Events == source
			}, patience, 10*time.Millisecond)

			p := newPod("events", shell("main", "sleep 0.3; exit 4"))
			sandbox, ids := r.start(t, p)
			for _, wanted := range []runtime.Hint{
				{UID: p.UID, ID: ids["main"], What: runtime.HintStarted},
				{UID: p.UID, ID: ids["main"], What: runtime.HintStopped},
			} {
				require.Eventually(t, func() bool { return seen.has(wanted) }, patience, time.Millisecond, "%+v in %+v", wanted, seen)
			}
			// A hint comes when the runtime already shows what happened.
			o, err := r.Inspect(t.Context(), p.UID)
			require.NoError(t, err)
			main, _ := o.Latest("main")
			require.Equal(t, pod.StateExited, main.State)
			require.EqualValues(t, 4, main.ExitCode)

			require.NoError(t, r.StopSandbox(t.Context(), sandbox.ID))
			stopped := runtime.Hint{UID: p.UID, ID: sandbox.ID, What: runtime.HintStopped}
			require.Eventually(t, func() bool { return seen.has(stopped) }, patience, time.Millisecond)

			require.NoError(t, r.containerd.Kill9(t.Context()))
			select {
			case err := <-broke:
				require.Equal(t, pod.ClassUnavailable, pod.ClassOf(err), "%v", err)
			case <-time.After(patience):
				t.Fatal("the stream outlives the runtime")
			}
		})
	}
}

func TestRealReconnect(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			ctx := t.Context()
			p := newPod("stays", shell("main", "sleep 1000"))
			_, ids := r.start(t, p)
			before, err := r.Inspect(ctx, p.UID)
			require.NoError(t, err)
			require.NoError(t, r.containerd.Kill9(ctx))
			require.Eventually(t, func() bool {
				_, err := r.Inspect(ctx, p.UID)
				return pod.ClassOf(err) == pod.ClassUnavailable
			}, patience, 10*time.Millisecond)
			require.NoError(t, r.containerd.Restart(ctx))
			after := r.eventually(t, p.UID, func(o pod.Observation) bool { return len(o.Containers) == 1 })
			require.Equal(t, before.Containers, after.Containers)
			require.Equal(t, before.Sandboxes, after.Sandboxes)
			require.NoError(t, r.StopContainer(ctx, ids["main"], time.Second))
			seen, _ := follow(t, r.Client)
			other := newPod("later", shell("main", "true"))
			_, ids = r.start(t, other)
			require.Eventually(t, func() bool {
				return seen.has(runtime.Hint{UID: other.UID, ID: ids["main"], What: runtime.HintStopped})
			}, patience, 10*time.Millisecond)
		})
	}
}

// TestRealLateRuntime: the client may start before the runtime.
func TestRealLateRuntime(t *testing.T) {
	containerd := rig.ForTest(t, rig.V2)
	require.NoError(t, containerd.Kill9(t.Context()))
	c := runtime.New(runtime.Options{RuntimeEndpoint: containerd.Endpoint()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	_, err := c.List(ctx)
	require.Equal(t, pod.ClassUnavailable, pod.ClassOf(err))
	require.True(t, strings.HasPrefix(err.Error(), "cannot "), err)
	require.NoError(t, containerd.Restart(ctx))
	wait, done := context.WithTimeout(ctx, patience)
	defer done()
	require.NoError(t, c.Connect(wait))
	_, err = c.List(ctx)
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
	_, err = c.List(t.Context())
	require.Equal(t, pod.ClassUnavailable, pod.ClassOf(err))
}
