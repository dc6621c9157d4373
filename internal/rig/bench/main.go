// Command bench measures nodelet against the bare CRI calls that every agent
// must make, in one run: figures of two runs on a shared machine cannot be
// compared. Given a kubelet it measures that too, in turn, on the same private
// containerd. It is the program behind make bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"nodelet.dev/nodelet/internal/rig"
)

// options are the flags.
type options struct {
	nodelet string
	kubelet string
	flavor  string
	rounds  int // single pods of each kind
	bursts  int
	burst   int // pods at once
	many    int // pods for the idle figures; half of them are measured too
	idle    int // seconds to watch an idle agent
	scale   string
	sim     int // histories
}

func main() {
	var o options
	flag.StringVar(&o.nodelet, "nodelet", "bin/nodelet", "the binary to measure")
	flag.StringVar(&o.kubelet, "kubelet", "", "a kubelet to measure beside it")
	flag.StringVar(&o.flavor, "flavor", string(rig.V2), "containerd to measure on: debian or v2")
	flag.IntVar(&o.rounds, "rounds", 15, "single pods of each kind; 0 for none")
	flag.IntVar(&o.bursts, "bursts", 3, "bursts of each kind; 0 for none")
	flag.IntVar(&o.burst, "burst", 50, "pods of a burst")
	flag.IntVar(&o.many, "many", 100, "pods for the idle figures; 0 for none")
	flag.IntVar(&o.idle, "idle", 30, "seconds to watch an idle agent")
	flag.StringVar(&o.scale, "scale", "1000,5000", "numbers of pods on a runtime in memory; empty for none")
	flag.IntVar(&o.sim, "sim", 40, "histories that the simulator plays; 0 for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.nodelet, err = filepath.Abs(o.nodelet); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/var/tmp", "nb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmountBelow(dir), os.RemoveAll(dir)) }()
	r := newResults()
	err = errors.Join(onContainerd(ctx, o, dir, r), scale(ctx, o, dir, r), simulate(ctx, o, r))
	// What was measured before something failed is worth reading too.
	r.table(os.Stdout)
	r.samples(os.Stdout)
	return err
}

// onContainerd measures on a private containerd.
func onContainerd(ctx context.Context, o options, dir string, r *results) (err error) {
	if o.rounds+o.bursts+o.many == 0 {
		return nil
	}
	c, err := rig.Start(ctx, rig.Options{Dir: filepath.Join(dir, "c"), Flavor: rig.Flavor(o.flavor)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }() //nolint:forbidigo // to clean up after an interrupt
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	raw, err := newRaw(conn, filepath.Join(dir, "r"))
	if err != nil {
		return err
	}
	b := &bench{o: o, raw: raw, results: r}
	if err := b.measure(ctx, newNodelet(o.nodelet, filepath.Join(dir, "n"), c.Endpoint())); err != nil {
		return err
	}
	if o.kubelet == "" {
		return nil
	}
	// A kubelet ends pods that it does not know, so from here on nobody else makes
	// any.
	b.alone = true
	return b.measure(ctx, newKubelet(o.kubelet, filepath.Join(dir, "k"), c.Endpoint()))
}

// bench runs the measurements of one agent after another.
type bench struct {
	o       options
	raw     *raw
	alone   bool // no bare calls
	results *results
	agent   *agent

	concurrency int // of the bare calls in a burst
}

func (b *bench) measure(ctx context.Context, a *agent) error {
	b.agent = a
	if err := a.start(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{b.memoryIdle}
	if b.o.rounds > 0 {
		steps = append(steps, b.single, b.restart)
	}
	if b.o.bursts > 0 {
		steps = append(steps, b.burst)
	}
	if b.o.many > 0 {
		steps = append(steps, b.idle)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, a.stop())
		}
	}
	return a.stop()
}
