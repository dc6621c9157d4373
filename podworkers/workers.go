package podworkers

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
)

// Workers is the set of all workers. Its map belongs to the goroutine that
// calls Start, Get, Forget and Stop: syncLoop.
type Workers struct {
	deps    *Deps
	ctx     context.Context //nolint:containedctx // the life of all workers, ended by Stop
	cancel  context.CancelFunc
	leaving chan struct{}
	wait    sync.WaitGroup
	boxes   map[types.UID]*Mailbox
}

// New returns an empty set. Its workers end when ctx does, at the latest.
func New(ctx context.Context, deps *Deps) *Workers {
	ctx, cancel := context.WithCancel(ctx)
	return &Workers{deps: deps, ctx: ctx, cancel: cancel, leaving: make(chan struct{}), boxes: map[types.UID]*Mailbox{}}
}

// Start starts the worker of a pod with what is remembered of it. specHash is
// written on each sandbox (see pod.SpecHash). There must be no worker for the
// UID yet (PW-1).
func (w *Workers) Start(p *corev1.Pod, specHash string, rec pod.Record) *Mailbox {
	if _, exists := w.boxes[p.UID]; exists {
		panic("PW-1: a second worker for one UID")
	}
	box := newMailbox()
	w.boxes[p.UID] = box
	one := newWorker(w.deps, box, p, specHash, rec)
	w.wait.Go(func() { one.run(w.ctx, w.leaving) })
	return box
}

// Get returns the mailbox of a pod's worker, or nil.
func (w *Workers) Get(uid types.UID) *Mailbox { return w.boxes[uid] }

// Each calls f with every worker's pod and mailbox.
func (w *Workers) Each(f func(types.UID, *Mailbox)) {
	for uid, box := range w.boxes {
		f(uid, box)
	}
}

// Forget drops a worker that has finished.
func (w *Workers) Forget(uid types.UID) { delete(w.boxes, uid) }

// Len returns the number of workers.
func (w *Workers) Len() int { return len(w.boxes) }

// Poke makes every worker compute again.
func (w *Workers) Poke() {
	for _, box := range w.boxes {
		box.Poke()
	}
}

// Stop ends all workers and lets the pods run. Workers finish the wave they are
// in until ctx ends; then its calls are cancelled.
func (w *Workers) Stop(ctx context.Context) {
	close(w.leaving)
	done := make(chan struct{})
	go func() {
		w.wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	w.cancel()
	<-done
}
