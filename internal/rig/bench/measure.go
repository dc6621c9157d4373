package main

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// Polling intervals: fine where the end of the wait is what is measured.
const (
	pollCoarse = 100 * time.Millisecond
	pollFine   = 2 * time.Millisecond
)

// running waits until exactly so many pods of the agent run.
func (b *bench) running(ctx context.Context, n int) error {
	return b.agent.await(ctx, pollCoarse, func() (bool, error) {
		names, err := b.raw.running(ctx)
		return len(names) == n, err
	})
}

// cleared removes all pods and waits until they are gone. It returns how long
// that took.
func (b *bench) cleared(ctx context.Context, every time.Duration) (time.Duration, error) {
	began, err := b.agent.clear()
	if err != nil {
		return 0, err
	}
	err = b.agent.await(ctx, every, func() (bool, error) {
		left, err := b.raw.left(ctx, !b.agent.tidy)
		return left == 0, err
	})
	return time.Since(began), err
}

func (b *bench) memoryIdle(ctx context.Context) error {
	// That a first pod was made and removed says that the agent works.
	if _, err := b.agent.apply("first"); err != nil {
		return err
	}
	if err := b.running(ctx, 1); err != nil {
		return err
	}
	if _, err := b.cleared(ctx, pollCoarse); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // let it settle
	return b.footprint(0)
}

func (b *bench) footprint(pods int) error {
	resident, anonymous, err := memory(b.agent.pid())
	goals := map[int][2]string{0: {"40 MB", "18 MB"}, 100: {"", "30 MB"}}[pods]
	b.results.add(measure{key: fmt.Sprintf("Resident%d", pods), title: fmt.Sprintf("resident memory with %d pods", pods), unit: unitBytes, goal: goals[0]}, b.agent.subject, resident)
	b.results.add(measure{key: fmt.Sprintf("Anonymous%d", pods), title: fmt.Sprintf("anonymous memory with %d pods", pods), unit: unitBytes, goal: goals[1]}, b.agent.subject, anonymous)
	return err
}

// single alternates between the two ways of making and removing one pod, so that
// both meet the same noise.
func (b *bench) single(ctx context.Context) error {
	start := measure{key: "Start", title: "manifest renamed into place to container started", unit: unitTime, goal: "+5 %"}
	remove := measure{key: "Remove", title: "manifest removed to sandbox gone", unit: unitTime, absolute: true}
	for i := range b.o.rounds {
		if !b.alone {
			made, removed, err := b.raw.once(ctx)
			if err != nil {
				return err
			}
			b.results.took(start, subjectRaw, made)
			b.results.took(remove, subjectRaw, removed)
		}
		name := fmt.Sprintf("single-%d", i)
		began, err := b.agent.apply(name)
		if err != nil {
			return err
		}
		if err := b.running(ctx, 1); err != nil {
			return err
		}
		at, err := b.startOf(ctx, name)
		if err != nil {
			return err
		}
		b.results.took(start, b.agent.subject, at.Sub(began))
		removed, err := b.cleared(ctx, pollFine)
		if err != nil {
			return err
		}
		b.results.took(remove, b.agent.subject, removed)
	}
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
	m := measure{key: "Restart", title: "container exit to its first restart", unit: unitTime, goal: "+20 ms", absolute: true}
	for i := range b.o.rounds {
		if !b.alone {
			p, err := b.raw.pod(ctx, b.raw.name())
			if err != nil {
				return err
			}
			took, err := b.raw.restart(ctx, &p)
			if err != nil {
				return err
			}
			b.results.took(m, subjectRaw, took)
			if err := b.raw.remove(ctx, p); err != nil {
				return err
			}
		}
		took, err := b.restartOnce(ctx, fmt.Sprintf("restart-%d", i))
		if err != nil {
			return err
		}
		b.results.took(m, b.agent.subject, took)
		if _, err := b.cleared(ctx, pollCoarse); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) restartOnce(ctx context.Context, name string) (time.Duration, error) {
	if _, err := b.agent.apply(name); err != nil {
		return 0, err
	}
	if err := b.running(ctx, 1); err != nil {
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
	var took time.Duration
	err = b.agent.await(ctx, pollCoarse, func() (bool, error) {
		list, err := b.raw.instances(ctx, name)
		var ended, started int64
		for _, s := range list {
			ended = max(ended, s.GetFinishedAt())
			started = max(started, s.GetStartedAt())
		}
		took = time.Duration(started - ended)
		return ended > 0 && took > 0, err
	})
	return took, err
}

// burst compares many pods at once with the bare calls at their best concurrency.
func (b *bench) burst(ctx context.Context) error {
	last := measure{key: fmt.Sprintf("Burst%d", b.o.burst), unit: unitTime, goal: "+5 %"}
	if !b.alone {
		if err := b.findConcurrency(ctx); err != nil {
			return err
		}
	}
	last.title = fmt.Sprintf("burst of %d pods, time to the last start (raw: %d at a time)", b.o.burst, b.concurrency)
	for range b.o.bursts {
		if !b.alone {
			took, err := b.raw.burst(ctx, b.o.burst, b.concurrency)
			if err != nil {
				return err
			}
			b.results.took(last, subjectRaw, took)
		}
		if err := b.burstOnce(ctx, last); err != nil {
			return err
		}
		if _, err := b.cleared(ctx, pollCoarse); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) findConcurrency(ctx context.Context) error {
	best := time.Duration(0)
	for _, n := range []int{4, 6, 8, 16} {
		took, err := b.raw.burst(ctx, b.o.burst, n)
		if err != nil {
			return err
		}
		if best == 0 || took < best {
			best, b.concurrency = took, n
		}
	}
	return nil
}

func (b *bench) burstOnce(ctx context.Context, last measure) error {
	names := numbered("burst", b.o.burst)
	before, err := cpu(b.agent.pid())
	if err != nil {
		return err
	}
	began, err := b.agent.apply(names...)
	if err != nil {
		return err
	}
	if err := b.running(ctx, len(names)); err != nil {
		return err
	}
	after, err := cpu(b.agent.pid())
	if err != nil {
		return err
	}
	var starts []float64
	longest := time.Duration(0)
	for _, name := range names {
		at, err := b.startOf(ctx, name)
		if err != nil {
			return err
		}
		starts = append(starts, float64(at.Sub(began)))
		longest = max(longest, at.Sub(began))
	}
	b.results.took(last, b.agent.subject, longest)
	b.results.add(measure{key: last.key + "Median", title: "the same, median pod", unit: unitTime}, b.agent.subject, median(starts))
	b.results.took(measure{key: last.key + "CPU", title: "the same, processor time of the agent", unit: unitTime}, b.agent.subject, after-before)
	return nil
}

func numbered(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = name + "-" + strconv.Itoa(i)
	}
	return names
}

// idle watches an agent that has nothing to do but to be there, with half of the
// pods and with all, and then starts it again.
func (b *bench) idle(ctx context.Context) error {
	names := numbered("idle", b.o.many)
	for _, n := range []int{b.o.many / 2, b.o.many} {
		if _, err := b.agent.apply(names[:n]...); err != nil {
			return err
		}
		if err := b.running(ctx, n); err != nil {
			return err
		}
		time.Sleep(5 * time.Second) // let it settle
		before, err := cpu(b.agent.pid())
		if err != nil {
			return err
		}
		watch := time.Duration(b.o.idle) * time.Second
		time.Sleep(watch)
		after, err := cpu(b.agent.pid())
		if err != nil {
			return err
		}
		goal := ""
		if n == 100 {
			goal = "0.3 %"
		}
		b.results.add(measure{key: fmt.Sprintf("Idle%d", n), title: fmt.Sprintf("idle CPU with %d pods", n), unit: unitCPU, goal: goal},
			b.agent.subject, float64(after-before)/float64(watch)*100)
		if err := b.footprint(n); err != nil {
			return err
		}
	}
	if b.agent.subject == subjectNodelet {
		if err := b.adoption(ctx); err != nil {
			return err
		}
	}
	_, err := b.cleared(ctx, pollCoarse)
	return err
}

// adoption measures from the start of another agent until it shows every pod as
// running, which the bare calls need a list and an inspection of each for.
func (b *bench) adoption(ctx context.Context) error {
	m := measure{key: fmt.Sprintf("Adopt%d", b.o.many), title: fmt.Sprintf("adoption of %d pods after a restart of the agent", b.o.many), unit: unitTime, absolute: true}
	for range 3 {
		if err := b.agent.stop(); err != nil {
			return err
		}
		took, err := b.raw.inspectAll(ctx)
		if err != nil {
			return err
		}
		b.results.took(m, subjectRaw, took)
		began := time.Now()
		if err := b.agent.start(ctx); err != nil {
			return err
		}
		if err := b.agent.shows(ctx, b.o.many); err != nil {
			return err
		}
		b.results.took(m, b.agent.subject, time.Since(began))
	}
	return nil
}
