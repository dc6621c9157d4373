package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/podworkers"
	"nodelet.dev/nodelet/probes"
)

// workerProber is the prober as the workers ask for it.
type workerProber struct{ *probes.Manager }

func (p workerProber) Set(of *corev1.Pod, targets []pod.ProbeTarget, box *podworkers.Mailbox) {
	p.Manager.Set(of, targets, box)
}

// newProber returns a prober whose probes end with ctx.
func (a *Agent) newProber(ctx context.Context) *probes.Manager {
	return probes.New(ctx, probes.Options{
		Execer: a.runtime, UserAgent: probes.DefaultUserAgent + " nodelet/" + a.version,
		Event: func(p *corev1.Pod, e probes.Event) {
			a.event(p, e.Container, corev1.EventTypeWarning, e.Reason, e.Message)
		},
	})
}
