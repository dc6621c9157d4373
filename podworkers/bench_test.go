package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
)

// bench is a set of workers with everything that they ask for.
type bench struct {
	testing.TB // of the bubble
	*machine
	disk    *disk
	paper   *paper
	ports   *ports
	folders *folders
	prober  *prober
	workers *podworkers.Workers
	deps    *podworkers.Deps
	began   time.Time
}

// inBubble runs a test in a bubble; that the bubble ends shows that no goroutine
// of a worker is left.
func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		b := newBench(t, newMachine())
		b.deps.Runtime = b.machine
		b.run(test)
	})
}

func newBench(t *testing.T, m *machine) *bench {
	t.Helper()
	b := &bench{
		TB: t, machine: m, disk: &disk{records: map[types.UID]pod.Record{}}, paper: &paper{began: time.Now(), reports: map[types.UID]podworkers.Report{}},
		ports: &ports{holders: map[int32]types.UID{}}, folders: &folders{}, prober: &prober{asked: map[types.UID][][]pod.ProbeTarget{}}, began: time.Now(),
	}
	b.deps = &podworkers.Deps{
		Volumes: b.folders, Ports: b.ports, Store: b.disk, Sink: b.paper, Limits: plan.DefaultLimits, Now: b.now,
		Prober: b.prober, HostIPs: []string{"192.0.2.1"}, RuntimeName: "containerd", CallTimeout: 2 * time.Minute,
	}
	return b
}

func (b *bench) run(test func(*bench)) {
	b.workers = podworkers.New(context.Background(), b.deps)
	defer func() {
		bound, cancel := context.WithTimeout(context.Background(), time.Minute)
		b.workers.Stop(bound)
		cancel()
	}()
	test(b)
}

func (b *bench) now() pod.Stamp {
	up := time.Since(b.began)
	return pod.Stamp{Wall: time.Now().Round(0), Boot: up, BootID: "boot"}
}

// start starts the worker of a pod that nobody knew before.
func (b *bench) start(p *corev1.Pod) *podworkers.Mailbox { return b.resume(p, pod.Record{}) }

func (b *bench) resume(p *corev1.Pod, rec pod.Record) *podworkers.Mailbox {
	return b.workers.Start(p, pod.SpecHash(p), rec)
}

// seen hands the worker what a PLEG would see now.
func (b *bench) seen(box *podworkers.Mailbox, p *corev1.Pod) {
	time.Sleep(time.Millisecond)
	box.PutObservation(b.look(p.UID))
	b.settle()
}

// settle waits until nothing moves without time passing, and then a moment more.
func (b *bench) settle() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

func container(name string) corev1.Container {
	return corev1.Container{Name: name, Image: name + ":1", ImagePullPolicy: corev1.PullIfNotPresent}
}

func newPod(name string, containers ...corev1.Container) *corev1.Pod {
	grace := int64(30)
	if len(containers) == 0 {
		containers = []corev1.Container{container("main")}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{Containers: containers, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace},
	}
}

// disk is a store that can be full or slow.
type disk struct {
	mu      sync.Mutex // guards the fields below
	records map[types.UID]pod.Record
	writes  []time.Time
	full    bool
	takes   time.Duration
}

var errFull = errors.New("no space left")

func (d *disk) PutRecord(uid types.UID, rec pod.Record) error {
	d.mu.Lock()
	d.writes = append(d.writes, time.Now())
	takes := d.takes
	d.mu.Unlock()
	time.Sleep(takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return errFull
	}
	d.records[uid] = rec
	return nil
}

func (d *disk) set(full bool, takes time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.takes = full, takes
}

func (d *disk) record(uid types.UID) pod.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[uid]
}

func (d *disk) written() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.writes)
}

// paper is what the workers said.
type paper struct {
	began time.Time

	mu       sync.Mutex // guards the fields below
	events   []string
	at       []time.Duration
	reports  map[types.UID]podworkers.Report
	finished []types.UID
}

func (s *paper) Publish(r podworkers.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports[r.Pod.UID] = r
}

func (s *paper) Event(_ *corev1.Pod, e plan.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s %s: %s", e.Type, e.Reason, e.Container, e.Message))
	s.at = append(s.at, time.Since(s.began))
}

func (s *paper) Finished(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, p.UID)
}

func (s *paper) report(uid types.UID) podworkers.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reports[uid]
}

func (s *paper) gone() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished
}

// take returns the events since the last time.
func (s *paper) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.events
	s.events, s.at = nil, nil
	return out
}

// ports arbitrates host ports.
type ports struct {
	mu      sync.Mutex // guards holders
	holders map[int32]types.UID
}

func (h *ports) Claim(_ context.Context, p *corev1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, port := range pod.HostPorts(&p.Spec) {
		if holder, taken := h.holders[port.Port]; taken && holder != p.UID {
			return pod.Errorf(pod.ClassConflict, "HostPortConflict", "cannot use port %d: %s has it", port.Port, holder)
		}
		h.holders[port.Port] = p.UID
	}
	return nil
}

func (h *ports) Release(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, holder := range h.holders {
		if holder == uid {
			delete(h.holders, port)
		}
	}
}

// folders are volumes.
type folders struct {
	mu       sync.Mutex // guards the fields below
	fails    []error    // of the next calls
	setUps   int
	tornDown []types.UID
	messages map[string]string
}

func (f *folders) fail() error {
	if len(f.fails) == 0 {
		return nil
	}
	err := f.fails[0]
	f.fails = f.fails[1:]
	return err
}

func (f *folders) SetUp(context.Context, *corev1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setUps++
	return f.fail()
}

func (f *folders) Mounts(_ context.Context, _ *corev1.Pod, _ string, _ uint32, ips []string) ([]pod.Mount, error) {
	if len(ips) == 0 {
		return nil, errors.New("no addresses for the hosts file")
	}
	return nil, nil
}

func (f *folders) TearDown(_ context.Context, uid types.UID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tornDown = append(f.tornDown, uid)
	return f.fail()
}

func (f *folders) TerminationMessage(_ types.UID, container string, attempt uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.messages[fmt.Sprint(container, attempt)]
}

// prober notes what it is asked for.
type prober struct {
	mu    sync.Mutex // guards asked
	asked map[types.UID][][]pod.ProbeTarget
}

func (r *prober) Set(p *corev1.Pod, targets []pod.ProbeTarget, _ *podworkers.Mailbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[p.UID] = append(r.asked[p.UID], targets)
}

// take returns what was asked for since, each time as "kind container known" words.
func (r *prober) take(uid types.UID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, targets := range r.asked[uid] {
		var words []string
		for _, t := range targets {
			word := fmt.Sprintf("%s %s %s", t.Kind, t.Container.Name, t.Known)
			if t.Inherited {
				word += " inherited"
			}
			words = append(words, word)
		}
		out = append(out, strings.Join(words, ", "))
	}
	r.asked[uid] = nil
	return out
}

// leave ends all workers as an agent does that goes.
func (b *bench) leave() {
	bound, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	b.workers.Stop(bound)
}

// restart is the next agent: it knows what is on disk.
func (b *bench) restart() { b.workers = podworkers.New(context.Background(), b.deps) }

// make makes a pod run without a worker.
func (b *bench) make(p *corev1.Pod) {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(b.CreateSandbox(ctx, p, pod.SpecHash(p), 0))
	for i := range p.Spec.Containers {
		must(b.CreateContainer(ctx, podworkers.ContainerRequest{Pod: p, Name: p.Spec.Containers[i].Name, Sandbox: b.look(p.UID).Sandboxes[0]}))
	}
	for _, c := range b.look(p.UID).Containers {
		must(b.StartContainer(ctx, c.ID))
	}
}

func newProbe(grace int64) *corev1.Probe {
	return &corev1.Probe{TerminationGracePeriodSeconds: &grace, FailureThreshold: 1, PeriodSeconds: 1}
}
