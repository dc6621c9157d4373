package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// exits is how many containers end while their cost is watched.
const exits = 200

// relistWatch is how long a large idle node is watched; the PLEG lists once a
// minute.
const relistWatch = 60 * time.Second

// scale measures with many pods on a runtime in memory, where the runtime itself
// costs the agent nothing.
func scale(ctx context.Context, o options, dir string, r *results) error {
	for _, text := range strings.FieldsFunc(o.scale, func(c rune) bool { return c == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("cannot read the number of pods: %w", err)
		}
		if err := scaleTo(ctx, o, filepath.Join(dir, "s"+text), n, r); err != nil {
			return fmt.Errorf("with %d pods: %w", n, err)
		}
	}
	return nil
}

func scaleTo(ctx context.Context, o options, dir string, n int, r *results) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cri := fakecri.New(fakecri.Options{PullAny: true, JournalSize: 1000})
	defer cri.Close()
	socket := filepath.Join(dir, "cri.sock")
	if err := cri.Listen(socket); err != nil {
		return err
	}
	s := &scaled{n: n, cri: cri, agent: newNodelet(o.nodelet, filepath.Join(dir, "n"), "unix://"+socket), results: r}
	if err := s.agent.start(ctx); err != nil {
		return err
	}
	var err error
	for _, step := range []func(context.Context) error{s.fill, s.exits, s.rest} {
		if err == nil {
			err = step(ctx)
		}
	}
	return errors.Join(err, s.agent.stop())
}

// scaled is a node with many pods.
type scaled struct {
	n       int
	cri     *fakecri.Server
	agent   *agent
	results *results
}

func (s *scaled) add(key, title, unit string, value float64) {
	s.results.add(measure{key: fmt.Sprintf("%s%d", key, s.n), title: fmt.Sprintf("%d pods in memory: %s", s.n, title), unit: unit}, subjectNodelet, value)
}

// attempts counts the running containers, and those of them that run again.
func (s *scaled) attempts() (running, restarted int) {
	for _, c := range s.cri.Snapshot().Containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running++
			if c.Attempt > 0 {
				restarted++
			}
		}
	}
	return running, restarted
}

// fill starts all pods.
func (s *scaled) fill(ctx context.Context) error {
	if err := s.agent.shows(ctx, 0); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // let it settle
	_, empty, err := memory(s.agent.pid())
	if err != nil {
		return err
	}
	before, err := cpu(s.agent.pid())
	if err != nil {
		return err
	}
	began, err := s.agent.apply(numbered("pod", s.n)...)
	if err != nil {
		return err
	}
	if err := s.agent.await(ctx, pollCoarse, func() (bool, error) { running, _ := s.attempts(); return running == s.n, nil }); err != nil {
		return err
	}
	took := time.Since(began)
	time.Sleep(5 * time.Second) // let it settle
	after, err := cpu(s.agent.pid())
	if err != nil {
		return err
	}
	_, full, err := memory(s.agent.pid())
	if err != nil {
		return err
	}
	s.add("FakeFill", "time to start them all", unitTime, float64(took))
	s.add("FakeStart", "processor time of the agent for the start of one", unitTime, float64(after-before)/float64(s.n))
	s.add("FakeMemory", "anonymous memory of each", unitBytes, (full-empty)/float64(s.n))
	return nil
}

// exits ends containers, which the agent then starts again.
func (s *scaled) exits(ctx context.Context) error {
	before, err := cpu(s.agent.pid())
	if err != nil {
		return err
	}
	ended := 0
	for _, c := range s.cri.Snapshot().Containers {
		if ended == exits {
			break
		}
		if err := s.cri.Exit(c.ID, 1, "Error"); err != nil {
			return err
		}
		ended++
	}
	err = s.agent.await(ctx, pollCoarse, func() (bool, error) {
		running, restarted := s.attempts()
		return running == s.n && restarted == ended, nil
	})
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // let it settle
	after, err := cpu(s.agent.pid())
	s.add("FakeExit", "processor time of the agent for an exit and the restart", unitTime, float64(after-before)/float64(ended))
	return err
}

// rest watches the node while nothing happens but relists.
func (s *scaled) rest(context.Context) error {
	before, err := cpu(s.agent.pid())
	if err != nil {
		return err
	}
	time.Sleep(relistWatch)
	after, err := cpu(s.agent.pid())
	s.add("FakeIdle", "processor time of the agent in an idle minute, its relist included", unitTime, float64(after-before))
	return err
}

// simulate lets the simulator play histories and takes over its speed.
func simulate(ctx context.Context, o options, r *results) error {
	if o.sim == 0 {
		return nil
	}
	//nolint:gosec // the number is the user's
	out, err := exec.CommandContext(ctx, "go", "test", "./internal/sim", "-run", "^$", "-bench", "^BenchmarkSimulator$", "-benchtime", fmt.Sprintf("%dx", o.sim)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run the simulator: %w\n%s", err, out)
	}
	f := strings.Fields(string(out))
	for i, word := range f {
		if word != unitRate {
			continue
		}
		v, err := strconv.ParseFloat(f[i-1], 64)
		if err != nil {
			return fmt.Errorf("cannot read the speed of the simulator: %w", err)
		}
		r.add(measure{key: "Simulator", title: "simulator, with a check of all invariants after each step", unit: unitRate}, subjectNodelet, v)
		return nil
	}
	return fmt.Errorf("the simulator tells no speed:\n%s", out)
}
