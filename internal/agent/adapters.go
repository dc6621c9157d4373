package agent

import (
	"context"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/gc"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/volumes"
	"nodelet.dev/nodelet/pleg"
	"nodelet.dev/nodelet/podworkers"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/convert"
)

// workerRuntime is the runtime as the workers ask for it.
type workerRuntime struct {
	*runtime.Client
	// warn is told what the author of a pod should know about its sandbox.
	warn func(p *corev1.Pod, w convert.Warning)
	// pulls is told of each image that is wanted. The calls for it get the context
	// that it returns.
	pulls func(ctx context.Context, p *corev1.Pod, c *corev1.Container) (context.Context, watchedPull)
}

func (r workerRuntime) CreateSandbox(ctx context.Context, p *corev1.Pod, specHash string, attempt uint32) error {
	_, err := r.Client.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p, Attempt: attempt, SpecHash: specHash})
	if err == nil {
		for _, w := range r.SandboxWarnings(p) {
			r.warn(p, w)
		}
	}
	return err
}

func (r workerRuntime) PullImage(ctx context.Context, p *corev1.Pod, c *corev1.Container, pulling func()) (podworkers.Image, error) {
	ctx, watched := r.pulls(ctx, p, c)
	image, err := r.Client.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: c, Pulling: func() { watched.asks(); pulling() }})
	watched.ended(err)
	return podworkers.Image{
		Ref: image.Ref, SizeBytes: image.SizeBytes, Present: image.Present, Took: image.Took, Waited: image.Took + image.Waited,
	}, err
}

func (r workerRuntime) CreateContainer(ctx context.Context, req podworkers.ContainerRequest) error {
	_, err := r.Client.CreateContainer(ctx, runtime.ContainerRequest{
		Pod: req.Pod, Name: req.Name, Attempt: req.Attempt, Sandbox: req.Sandbox,
		ImageRef: req.Image, Mounts: req.Mounts, SpecHash: req.SpecHash,
	})
	return err
}

// gcRuntime is the runtime as the collector asks for it.
type gcRuntime struct{ *runtime.Client }

func (r gcRuntime) List(ctx context.Context) (map[types.UID]pod.Observation, error) {
	l, err := r.Client.List(ctx)
	return l.Pods, err
}

// plegRuntime is the runtime as the PLEG asks for it.
type plegRuntime struct{ *runtime.Client }

func (r plegRuntime) List(ctx context.Context) (pleg.Listing, error) {
	l, err := r.Client.List(ctx)
	return pleg.Listing(l.Pods), err
}

// Events translates hints. Only ends are urgent: the rest tells mostly of what
// the workers do themselves.
func (r plegRuntime) Events(ctx context.Context, out chan<- pleg.Hint) error {
	if err := r.Connect(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hints := make(chan runtime.Hint)
	ended := make(chan error, 1)
	go func() {
		ended <- r.Client.Events(ctx, hints)
		close(hints)
	}()
	for h := range hints {
		hint := pleg.Hint{UID: h.UID, ID: h.ID, Urgent: h.What == runtime.HintStopped || h.What == runtime.HintOOM}
		select {
		case out <- hint:
		case <-ctx.Done():
			cancel()
		}
	}
	return <-ended
}

// podVolumes joins the volumes with the text of the hosts file.
type podVolumes struct {
	*volumes.Manager
	clusterDomain string
}

func (v podVolumes) Mounts(ctx context.Context, p *corev1.Pod, container string, attempt uint32, ips []string) ([]pod.Mount, error) {
	hosts := ""
	if p.Spec.HostNetwork || len(ips) > 0 {
		text, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, pod.Errorf(pod.ClassUnknown, convert.ReasonContainerConfig, "cannot read the hosts file of the node: %w", err)
		}
		hosts = convert.HostsFile(p, ips, string(text), v.clusterDomain)
	}
	return v.Manager.Mounts(ctx, volumes.Request{Pod: p, Container: container, Attempt: attempt, HostsText: hosts})
}

// sink takes what workers say.
type sink struct{ a *Agent }

func (s sink) Publish(r podworkers.Report) {
	before := s.a.board.put(r)
	s.a.waits(r.Pod, before.Waits, r.Waits)
	s.a.courses.report(r)
	s.a.countEnds(before.Record, r)
}

func (s sink) Event(p *corev1.Pod, e plan.Event) {
	s.a.event(p, e.Container, e.Type, e.Reason, e.Message)
}

func (s sink) Finished(p *corev1.Pod) {
	if err := gc.RemoveLogs(s.a.cfg.PodLogsDir, pod.KeyOf(p), p.UID); err != nil {
		klog.ErrorS(err, "Cannot remove the logs of a pod", "pod", klog.KObj(p))
	}
	s.a.courses.forget(p.UID)
	s.a.done.put(p.UID)
}
