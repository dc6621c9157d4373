// Command bench measures nodelet against the bare CRI calls that every agent
// must make, on one private containerd, in one run: figures of two runs on a
// shared machine cannot be compared. It is the program behind make bench.
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
	flavor  string
	rounds  int // single pods of each kind
	burst   int // pods at once
	many    int // pods for the idle figures
	idle    int // seconds to watch an idle agent
}

func main() {
	var o options
	flag.StringVar(&o.nodelet, "nodelet", "bin/nodelet", "the binary to measure")
	flag.StringVar(&o.flavor, "flavor", string(rig.V2), "containerd to measure on: debian or v2")
	flag.IntVar(&o.rounds, "rounds", 15, "single pods of each kind; 0 for none")
	flag.IntVar(&o.burst, "burst", 50, "pods at once; 0 for none")
	flag.IntVar(&o.many, "many", 100, "pods for the idle figures; 0 for none")
	flag.IntVar(&o.idle, "idle", 30, "seconds to watch an idle agent")
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
	bin, err := filepath.Abs(o.nodelet)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/var/tmp", "nb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
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
	b := &bench{o: o, raw: raw, agent: newAgent(bin, filepath.Join(dir, "n"), c.Endpoint())}
	return errors.Join(b.all(ctx), b.agent.stop())
}

// bench runs the measurements one after another and prints a line for each.
type bench struct {
	o     options
	raw   *raw
	agent *agent
}

func (b *bench) all(ctx context.Context) error {
	if err := b.agent.start(ctx); err != nil {
		return err
	}
	fmt.Printf("| measure | raw | nodelet | ratio | goal |\n|---|---|---|---|---|\n")
	steps := []func(context.Context) error{b.memoryIdle}
	if b.o.rounds > 0 {
		steps = append(steps, b.single, b.restart)
	}
	if b.o.burst > 0 {
		steps = append(steps, b.burst)
	}
	if b.o.many > 0 {
		steps = append(steps, b.idle)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
