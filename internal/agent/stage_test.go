package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/node"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/source"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// stage is a whole agent in a bubble, over a runtime in memory. Only its socket
// and the watching of files are missing, since both wait outside of the bubble.
type stage struct {
	testing.TB // of the bubble
	cri        *fakecri.Server
	cfg        config.Configuration
	names      []string // of the sources
	wires      map[string]chan source.Set

	clock        *node.Clock
	a            *Agent
	outer, inner *group
}

// onStage runs a test with the agent started and the sources given, which have
// not delivered yet.
func onStage(t *testing.T, cri fakecri.Options, sources []string, test func(s *stage)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		cri.PullAny = true
		s := &stage{TB: t, cri: fakecri.New(cri), cfg: config.Default(), names: sources, wires: map[string]chan source.Set{}}
		s.cfg.RootDirectory, s.cfg.PodLogsDir = filepath.Join(dir, "root"), filepath.Join(dir, "logs")
		s.cfg.NodeName, s.cfg.RegistryPullQPS = "edge", new(int32(0))
		s.cfg.ContainerRuntimeEndpoint = "memory"
		defer s.cri.Close()
		s.start()
		defer func() { s.stop() }()
		test(s)
	})
}

func (s *stage) start() {
	s.Helper()
	a, err := build(s.cfg, "v0", s.cri.Bufconn())
	require.NoError(s, err)
	// The boot clock is outside of the bubble and stands nearly still.
	if s.clock == nil {
		s.clock = &a.clock
	}
	a.clock = *s.clock
	instances, err := a.store.All()
	require.NoError(s, err)
	for _, name := range s.names {
		wire := make(chan source.Set)
		s.wires[name] = wire
		a.sources = append(a.sources, feed{
			name: name, origin: "/" + name, problems: func() []source.Problem { return nil },
			run: func(ctx context.Context, out chan<- source.Set) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case set := <-wire:
						select {
						case out <- set:
						case <-ctx.Done():
							return nil
						}
					}
				}
			},
		})
	}
	a.goneRound()
	a.announce()
	s.a = a
	s.outer, s.inner = newGroup(context.Background(), false), newGroup(context.Background(), true)
	a.begin(s.outer, s.inner, instances, func() {})
	s.settle()
}

func (s *stage) stop() {
	s.Helper()
	require.NoError(s, s.a.leave(s.outer, s.inner))
	require.NoError(s, s.a.store.Close())
}

// restart is the end of one agent and the beginning of the next.
func (s *stage) restart() {
	s.Helper()
	s.stop()
	s.start()
}

// settle lets what can happen now happen.
func (s *stage) settle() {
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

func (s *stage) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// send delivers the whole set of a source.
func (s *stage) send(name string, pods ...*corev1.Pod) {
	s.sendSet(source.Set{Source: name, Pods: pods})
}

func (s *stage) sendSet(set source.Set) {
	for i, p := range set.Pods {
		set.Pods[i] = from(set.Source, p)
	}
	s.wires[set.Source] <- set
	s.settle()
}

// from marks a pod as one of a source.
func from(name string, p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.SourceAnnotation] = name
	if p.Annotations[pod.OriginAnnotation] == "" {
		p.Annotations[pod.OriginAnnotation] = "/" + name + "/" + p.Name
	}
	return p
}

// newPod is a pod with one container that runs until it is told to end.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "main", Image: "app:1"}},
			TerminationGracePeriodSeconds: new(int64(20)),
		},
	}
}

// changed returns the pod after a change.
func changed(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	change(p)
	return p
}

// running returns what runs, as "pod container image", in order.
func (s *stage) running() []string {
	var list []string
	snap := s.cri.Snapshot()
	for _, c := range snap.Containers {
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		for _, b := range snap.Sandboxes {
			if b.ID == c.SandboxID {
				list = append(list, fmt.Sprintf("%s %s %s", b.Pod, c.Name, c.Labels["io.kubernetes.container.name"]))
			}
		}
	}
	for i, text := range list {
		list[i] = text[:strings.LastIndex(text, " ")]
	}
	slices.Sort(list)
	return list
}

// uid returns the UID of the pod that has a name, from what the agent shows.
func (s *stage) uid(name string) types.UID {
	s.Helper()
	return s.shown(name).UID
}

func (s *stage) shown(name string) *corev1.Pod {
	s.Helper()
	var found []*corev1.Pod
	list := s.a.Pods()
	for i := range list.Items {
		if list.Items[i].Name == name {
			found = append(found, &list.Items[i])
		}
	}
	require.Len(s, found, 1, "pods called %s", name)
	return found[0]
}

// calls returns the calls of a kind about a pod's name, or about all.
func (s *stage) calls(rpc, name string) []fakecri.Call {
	var list []fakecri.Call
	for _, c := range s.cri.Calls() {
		if c.RPC == rpc && (name == "" || c.Pod == name) {
			list = append(list, c)
		}
	}
	return list
}

// graces returns the timeouts of the stops of a pod's containers.
func (s *stage) graces(name string) []int64 {
	var list []int64
	for _, c := range s.calls("StopContainer", name) {
		list = append(list, c.Request.(*runtimeapi.StopContainerRequest).GetTimeout())
	}
	return list
}

// events returns the events about an object, as "reason message".
func (s *stage) events(name string) []string {
	var list []string
	for _, e := range s.a.events.List() {
		if e.InvolvedObject.Name == name {
			list = append(list, e.Reason+" "+e.Message)
		}
	}
	return list
}

func (s *stage) reasons(name string) map[string]int {
	out := map[string]int{}
	for _, e := range s.a.events.List() {
		if e.InvolvedObject.Name == name {
			out[e.Reason] += int(e.Count)
		}
	}
	return out
}
