package podworkers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// Runtime is what a worker asks of the container runtime. Errors are
// *pod.Error values with a class. Stopping or removing what does not exist
// succeeds.
type Runtime interface {
	// Inspect lists the pod's sandboxes and containers, in documented order.
	Inspect(ctx context.Context, uid types.UID) (pod.Observation, error)
	CreateSandbox(ctx context.Context, p *corev1.Pod, specHash string, attempt uint32) error
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	// PullImage makes the image of a container present as its pull policy asks.
	// It calls pulling, if it comes to that, before it asks a registry.
	PullImage(ctx context.Context, p *corev1.Pod, c *corev1.Container, pulling func()) (Image, error)
	CreateContainer(ctx context.Context, req ContainerRequest) error
	StartContainer(ctx context.Context, id string) error
	// StopContainer waits until the container ended, at most grace and a bound.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	KillContainer(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
}

// Image is what PullImage found or fetched.
type Image struct {
	Ref       string        // what the runtime resolved the image to
	SizeBytes int64         // zero when unknown
	Present   bool          // it was there already
	Took      time.Duration // the pull itself
	Waited    time.Duration // the pull and the wait for its turn
}

// ContainerRequest asks for one container instance.
type ContainerRequest struct {
	Pod      *corev1.Pod
	Name     string
	Attempt  uint32
	Sandbox  pod.Sandbox
	Image    string // as the runtime resolved it
	Mounts   []pod.Mount
	SpecHash string
}

// Volumes is what a worker asks of the pod's volumes and directories.
type Volumes interface {
	SetUp(ctx context.Context, p *corev1.Pod) error
	// Mounts returns the mounts of one container instance, made ready.
	Mounts(ctx context.Context, p *corev1.Pod, container string, attempt uint32, ips []string) ([]pod.Mount, error)
	TearDown(ctx context.Context, uid types.UID) error
	// TerminationMessage returns what the instance left in its message file.
	TerminationMessage(uid types.UID, container string, attempt uint32) string
}

// HostPorts arbitrates the ports of the node between pods.
type HostPorts interface {
	// Claim takes all host ports of the pod, or none and an error that names the
	// holder. Claiming again what the pod holds succeeds.
	Claim(ctx context.Context, p *corev1.Pod) error
	Release(uid types.UID)
}

// Store keeps records durably.
type Store interface {
	// PutRecord returns once the record is on disk.
	PutRecord(uid types.UID, rec pod.Record) error
}

// Sink takes what a worker has to say. Its methods do not block.
type Sink interface {
	Publish(r Report)
	Event(p *corev1.Pod, e plan.Event)
	// Finished says that nothing is left of the pod and its worker has ended.
	Finished(p *corev1.Pod)
}

// Prober runs the probes of containers. What they conclude comes back into the
// mailbox.
type Prober interface {
	// Set replaces the probes of a pod. Those that run already go on; nil ends
	// all. It does not wait for probes that are in flight.
	Set(p *corev1.Pod, targets []pod.ProbeTarget, box *Mailbox)
}

// Report is the newest public state of a pod. It is immutable.
type Report struct {
	Pod    *corev1.Pod
	Status *corev1.PodStatus
	Phase  pod.Phase
	Waits  []pod.Wait
	// Deletion is the request by which the pod is on its way out, nil while it is
	// wanted.
	Deletion *pod.Stop
	// Plan is the newest plan, Record what is remembered of the pod, and Observed
	// what the runtime last said of it: for metrics and for the state dump.
	Plan     plan.Plan
	Record   pod.Record
	Observed pod.Observation
}

// Deletion returns the request to end a pod that nobody wants any more, or nil.
func Deletion(rec pod.Record) *pod.Stop {
	if rec.Stop == nil || !rec.Stop.Delete {
		return nil
	}
	return rec.Stop
}

// Deps are the ports and settings of all workers.
type Deps struct {
	Runtime Runtime
	Volumes Volumes
	Ports   HostPorts
	Store   Store
	Sink    Sink
	Prober  Prober
	// Limits returns the delays that hold now. It is called from all workers.
	Limits func() plan.Limits
	// Now returns the current moment on the clocks that survive a restart.
	Now func() pod.Stamp
	// HostIPs and RuntimeName go into each status.
	HostIPs     []string
	RuntimeName string
	// CallTimeout bounds an inspection.
	CallTimeout time.Duration
	// Begin, if set, is told of each wave before it runs; a wave without actions
	// only inspects the pod. The wave's calls get the context that it returns, and
	// how the wave ended is told to what it returns beside, after the inspection.
	// Both are quick, and called from all workers.
	Begin func(ctx context.Context, w Wave) (in context.Context, end func([]plan.Result))
}

// Wave is a wave that begins.
type Wave struct {
	Pod     *corev1.Pod
	Phase   pod.Phase
	Actions []plan.Action
}
