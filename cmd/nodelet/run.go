package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/agent"
	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/logs"
	"nodelet.dev/nodelet/internal/store"
	"nodelet.dev/nodelet/internal/systemd"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent in the foreground",
		Long: `Run the agent. It brings the pods of its sources to life and keeps them so.
SIGTERM or SIGINT ends the agent; the pods run on and are adopted by the next.
SIGHUP loads the configuration again and looks for manifests at once.
SIGUSR1 writes the state of the agent to a file in the run directory, if the
configuration has enableStateDump: true.

Each flag can be given as a variable too: NODELET_ROOT_DIR for --root-dir.`,
		Example: `  nodelet run
  nodelet run --static-pod-path ./pods --root-dir /tmp/nodelet --run-dir /tmp/nodelet/run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
	addConfigFlags(cmd.Flags())
	return cmd
}

func run(cmd *cobra.Command) error {
	signals, stop := hangups()
	defer stop()
	dumps, stopDumps := dumpRequests()
	defer stopDumps()
	l, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	c := l.Config
	flush, err := logs.Setup(cmd.Context(), logs.Options{Format: c.Logging.Format, Verbosity: int(c.Logging.Verbosity), Destination: logs.Stderr()})
	if err != nil {
		return err
	}
	defer flush()
	for _, notice := range notices(&l) {
		klog.InfoS("A part of the configuration has no effect", "what", notice)
	}
	if os.Geteuid() != 0 {
		return errors.New("cannot run pods: nodelet run needs root")
	}
	notifier, err := systemd.New()
	if err != nil {
		return err
	}
	a, err := agent.New(c, shortVersion())
	if err != nil {
		if _, held := errors.AsType[*store.LockedError](err); held {
			return &exitError{exitTemporary, err}
		}
		if _, newer := errors.AsType[*store.NewerFormatError](err); newer {
			return refuse(cmd.Context(), notifier, c, err)
		}
		return err
	}
	again := reloader{
		hangups: signals, load: func() (config.Loaded, error) { return loadAgain(cmd) }, apply: a.Reload,
		begins: notifier.Reloading, ends: notifier.Ready,
	}
	return supervise(cmd.Context(), notifier, supervised{a.Stalled, a.Narrator().Line}, func(ready func()) error {
		return again.beside(cmd.Context(), func(serve func()) error {
			return dumper{asked: dumps, write: a.WriteState}.beside(cmd.Context(), func(serveDumps func()) error {
				return a.Run(cmd.Context(), func() {
					ready()
					serve()
					serveDumps()
					klog.InfoS("nodelet is running", "version", shortVersion(), "root", c.RootDirectory, "manifests", c.StaticPodPath, "runtime", c.ContainerRuntimeEndpoint)
				})
			})
		})
	})
}
