package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

func ratio(a, b time.Duration) string { return fmt.Sprintf("%+.1f %%", (float64(a)/float64(b)-1)*100) }

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func (b *bench) row(measure, raw, ours, ratio, goal string) {
	fmt.Printf("| %s | %s | %s | %s | %s |\n", measure, raw, ours, ratio, goal)
}

// single alternates between the two ways of making one pod, so that both meet
// the same noise.
func (b *bench) single(ctx context.Context) error {
	var raws, ours []time.Duration
	for i := range b.o.rounds {
		began := time.Now()
		p, err := b.raw.pod(ctx, b.raw.name())
		if err != nil {
			return err
		}
		at, err := b.raw.started(ctx, p.container)
		if err != nil {
			return err
		}
		raws = append(raws, at.Sub(began))
		if err := b.raw.remove(ctx, p); err != nil {
			return err
		}
		name := fmt.Sprintf("single-%d", i)
		began, err = b.agent.apply(name)
		if err != nil {
			return err
		}
		if err := b.agent.waitReady(ctx, 1); err != nil {
			return err
		}
		at, err = b.startOf(ctx, name)
		if err != nil {
			return err
		}
		ours = append(ours, at.Sub(began))
		if err := b.agent.clear(ctx); err != nil {
			return err
		}
	}
	r, o := median(raws), median(ours)
	b.row("manifest renamed into place to container started, median", ms(r), ms(o), ratio(o, r), "+5 %")
	return nil
}

// startOf returns when the newest container of a pod started.
func (b *bench) startOf(ctx context.Context, name string) (time.Time, error) {
	list, err := b.raw.instances(ctx, name)
	if err != nil {
		return time.Time{}, err
	}
	var at time.Time
	for _, s := range list {
		if t := time.Unix(0, s.GetStartedAt()); t.After(at) {
			at = t
		}
	}
	if at.IsZero() {
		return at, fmt.Errorf("pod %s has no container", name)
	}
	return at, nil
}

// restart kills containers and measures from the end of one instance to the
// start of the next. The bare calls wait until the runtime shows the end, which
// takes it a while, and then create and start.
func (b *bench) restart(ctx context.Context) error {
	var raws, ours []time.Duration
	for i := range b.o.rounds {
		p, err := b.raw.pod(ctx, b.raw.name())
		if err != nil {
			return err
		}
		took, err := b.raw.restart(ctx, &p)
		if err != nil {
			return err
		}
		raws = append(raws, took)
		if err := b.raw.remove(ctx, p); err != nil {
			return err
		}
		name := fmt.Sprintf("restart-%d", i)
		took, err = b.restartOnce(ctx, name)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		if err := b.agent.clear(ctx); err != nil {
			return err
		}
	}
	r, o := median(raws), median(ours)
	b.row("container exit to its first restart, median", ms(r), ms(o), fmt.Sprintf("%+.0f ms", float64(o-r)/1e6), "+20 ms")
	return nil
}

func (b *bench) restartOnce(ctx context.Context, name string) (time.Duration, error) {
	if _, err := b.agent.apply(name); err != nil {
		return 0, err
	}
	if err := b.agent.waitReady(ctx, 1); err != nil {
		return 0, err
	}
	list, err := b.raw.instances(ctx, name)
	if err != nil {
		return 0, err
	}
	pid, err := b.raw.pid(ctx, list[0].GetId())
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	err = b.agent.wait(ctx, func(pods []corev1.Pod) bool {
		return len(pods) == 1 && len(pods[0].Status.ContainerStatuses) == 1 &&
			pods[0].Status.ContainerStatuses[0].RestartCount == 1 && pods[0].Status.ContainerStatuses[0].Ready
	})
	if err != nil {
		return 0, err
	}
	if list, err = b.raw.instances(ctx, name); err != nil {
		return 0, err
	}
	var ended, started int64
	for _, s := range list {
		ended = max(ended, s.GetFinishedAt())
		started = max(started, s.GetStartedAt())
	}
	return time.Duration(started - ended), nil
}

// burst compares many pods at once with the bare calls at their best concurrency.
func (b *bench) burst(ctx context.Context) error {
	best, at := time.Duration(0), 0
	for _, n := range []int{4, 6, 8, 16} {
		last, err := b.raw.burst(ctx, b.o.burst, n)
		if err != nil {
			return err
		}
		if best == 0 || last < best {
			best, at = last, n
		}
	}
	names := make([]string, b.o.burst)
	for i := range names {
		names[i] = "burst-" + strconv.Itoa(i)
	}
	before, err := b.agent.cpu()
	if err != nil {
		return err
	}
	began, err := b.agent.apply(names...)
	if err != nil {
		return err
	}
	if err := b.agent.waitReady(ctx, len(names)); err != nil {
		return err
	}
	used, err := b.agent.cpu()
	if err != nil {
		return err
	}
	var starts []time.Duration
	for _, name := range names {
		at, err := b.startOf(ctx, name)
		if err != nil {
			return err
		}
		starts = append(starts, at.Sub(began))
	}
	slices.Sort(starts)
	last := starts[len(starts)-1]
	b.row(fmt.Sprintf("burst of %d pods, time to the last start (raw: %d at a time)", len(names), at), ms(best), ms(last), ratio(last, best), "+5 %")
	b.row("the same, median pod", "", ms(starts[len(starts)/2]), "", "")
	b.row("the same, processor time of the agent", "", ms(used-before), "", "")
	return b.agent.clear(ctx)
}

func (b *bench) memoryIdle(context.Context) error {
	time.Sleep(2 * time.Second) // let it settle
	resident, anonymous, err := b.agent.memory()
	b.row("memory without pods: resident, anonymous", "", fmt.Sprintf("%.1f MB, %.1f MB", resident, anonymous), "", "40 MB, 18 MB")
	return err
}

// idle watches an agent that has nothing to do but to be there.
func (b *bench) idle(ctx context.Context) error {
	names := make([]string, b.o.many)
	for i := range names {
		names[i] = "idle-" + strconv.Itoa(i)
	}
	if _, err := b.agent.apply(names...); err != nil {
		return err
	}
	if err := b.agent.waitReady(ctx, len(names)); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // let it settle
	before, err := b.agent.cpu()
	if err != nil {
		return err
	}
	watch := time.Duration(b.o.idle) * time.Second
	time.Sleep(watch)
	after, err := b.agent.cpu()
	if err != nil {
		return err
	}
	resident, anonymous, err := b.agent.memory()
	b.row(fmt.Sprintf("idle CPU with %d pods", len(names)), "", fmt.Sprintf("%.2f %% of a core", float64(after-before)/float64(watch)*100), "", "0.3 %")
	b.row(fmt.Sprintf("memory with %d pods: resident, anonymous", len(names)), "", fmt.Sprintf("%.1f MB, %.1f MB", resident, anonymous), "", "—, 30 MB")
	return errors.Join(err, b.agent.clear(ctx))
}
