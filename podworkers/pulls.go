package podworkers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// pull is one image pull in flight.
type pull struct {
	action plan.Action
	cancel context.CancelFunc
	wanted bool
}

type pullResult struct {
	pull  *pull
	image Image
	err   error
}

// wantPulls brings the pulls in flight to what the plan lists: missing ones
// start, unwanted ones are cancelled. A container has one at a time.
func (w *worker) wantPulls(ctx context.Context, actions []plan.Action) {
	wanted := map[string]plan.Action{}
	for _, a := range actions {
		wanted[a.Container] = a
	}
	for name, p := range w.pulls {
		if a, ok := wanted[name]; !ok || a != p.action {
			p.wanted = false
			p.cancel()
		}
	}
	for _, a := range actions {
		if w.pulls[a.Container] == nil {
			w.startPull(ctx, a)
		}
	}
}

func (w *worker) startPull(ctx context.Context, a plan.Action) {
	c, _ := pod.Find(&w.pod.Spec, a.Container)
	if c == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pull{action: a, cancel: cancel, wanted: true}
	w.pulls[a.Container] = p
	owner := w.pod
	go func() {
		image, err := w.deps.Runtime.PullImage(ctx, owner, c, func() {
			w.deps.Sink.Event(owner, plan.Event{
				Container: a.Container, Type: corev1.EventTypeNormal, Reason: "Pulling", Message: fmt.Sprintf("Pulling image %q", a.Image),
			})
		})
		w.pulled <- pullResult{pull: p, image: image, err: err}
	}()
}

// pullDone remembers an image that is there, or why it is not.
func (w *worker) pullDone(r pullResult) {
	a := r.pull.action
	delete(w.pulls, a.Container)
	r.pull.cancel()
	if !r.pull.wanted {
		return
	}
	w.rec = plan.Settle(w.rec, []plan.Result{{Action: a, Err: r.err, Image: r.image.Ref}}, w.deps.Limits(), w.deps.Now())
	if e, ok := pullEvent(a, r); ok {
		w.deps.Sink.Event(w.pod, e)
	}
}

func pullEvent(a plan.Action, r pullResult) (plan.Event, bool) {
	e := plan.Event{Container: a.Container, Type: corev1.EventTypeNormal, Reason: "Pulled"}
	switch {
	case pod.ClassOf(r.err) == pod.ClassCancelled:
		return e, false
	case r.err != nil:
		e.Type, e.Reason = corev1.EventTypeWarning, "Failed"
		switch pod.ReasonOf(r.err, "") {
		case "ErrImageNeverPull":
			e.Reason = "ErrImageNeverPull"
		case "ImageInspectError", "InvalidImageName":
			e.Reason = "InspectFailed"
		}
		e.Message = fmt.Sprintf("Failed to pull image %q: %v", a.Image, r.err)
	case r.image.Present:
		e.Message = fmt.Sprintf("Container image %q already present on machine", a.Image)
	default:
		e.Message = fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
			a.Image, r.image.Took.Round(1e6), r.image.Waited.Round(1e6), r.image.SizeBytes)
	}
	return e, true
}

// resultEvents tells the user about the results of a wave.
func resultEvents(results []plan.Result) []plan.Event {
	var list []plan.Event
	for _, r := range results {
		class := pod.ClassOf(r.Err)
		if class == pod.ClassCancelled || (class == pod.ClassConflict && r.Action.Op == plan.OpStartContainer) {
			continue
		}
		if e, ok := resultEvent(r); ok {
			list = append(list, e)
		}
	}
	return list
}

func resultEvent(r plan.Result) (plan.Event, bool) {
	e := plan.Event{Container: r.Action.Container, Type: corev1.EventTypeNormal}
	if r.Err == nil {
		switch r.Action.Op {
		case plan.OpCreateContainer:
			e.Reason, e.Message = "Created", "Container created"
		case plan.OpStartContainer:
			e.Reason, e.Message = "Started", "Container started"
		default:
			return e, false
		}
		return e, true
	}
	e.Type = corev1.EventTypeWarning
	e.Message = r.Err.Error()
	switch r.Action.Op {
	case plan.OpSetUpVolumes:
		e.Reason = "FailedMount"
	case plan.OpTearDownVolumes:
		e.Reason = "FailedUnMount"
	case plan.OpCreateSandbox:
		e.Reason = "FailedCreatePodSandBox"
		if pod.ClassOf(r.Err) == pod.ClassNetwork {
			e.Reason = "NetworkNotReady"
		}
	case plan.OpCreateContainer, plan.OpStartContainer:
		e.Reason, e.Message = "Failed", "Error: "+r.Err.Error()
	default:
		e.Reason = "FailedKillPod"
	}
	return e, true
}
