package main

import (
	"errors"
	"flag"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/agent"
	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/store"
	"nodelet.dev/nodelet/internal/systemd"
)

// defaultConfig is read when it exists; another file must exist.
const defaultConfig = "/etc/nodelet/config.yaml"

// runFlags are the flags of the daemon. Those that were given go over the file.
type runFlags struct {
	config    string
	verbosity int
	values    config.Configuration
}

func runCommand() *cobra.Command {
	var f runFlags
	defaults := config.Default()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent in the foreground",
		Long: `Run the agent. It brings the pods of its sources to life and keeps them so.
SIGTERM or SIGINT ends the agent; the pods run on and are adopted by the next.`,
		Example: `  nodelet run
  nodelet run --static-pod-path ./pods --root-dir /tmp/nodelet --run-dir /tmp/nodelet/run`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", defaultConfig, "configuration file")
	flags.StringVar(&f.values.RootDirectory, "root-dir", defaults.RootDirectory, "directory of the durable state and of the pods")
	flags.StringVar(&f.values.RunDirectory, "run-dir", defaults.RunDirectory, "directory of the socket")
	flags.StringVar(&f.values.StaticPodPath, "static-pod-path", defaults.StaticPodPath, "directory of manifests, or one manifest")
	flags.StringVar(&f.values.StaticPodURL, "static-pod-url", "", "URL to fetch manifests from")
	flags.StringVar(&f.values.ContainerRuntimeEndpoint, "runtime-endpoint", defaults.ContainerRuntimeEndpoint, "socket of the CRI runtime")
	flags.StringVar(&f.values.PodLogsDir, "pod-logs-dir", defaults.PodLogsDir, "directory of the logs of all pods")
	flags.StringVar(&f.values.NodeName, "node-name", "", "name of this node (default: the host name)")
	flags.IntVarP(&f.verbosity, "v", "v", 0, "log verbosity, 0 to 6")
	return cmd
}

// load reads the file and lays the given flags over it.
func (f *runFlags) load(cmd *cobra.Command) (config.Configuration, error) {
	c, err := config.Load(f.config, cmd.Flags().Changed("config"))
	if err != nil {
		return c, err
	}
	for name, to := range map[string]*string{
		"root-dir": &c.RootDirectory, "run-dir": &c.RunDirectory, "static-pod-path": &c.StaticPodPath, "static-pod-url": &c.StaticPodURL,
		"runtime-endpoint": &c.ContainerRuntimeEndpoint, "pod-logs-dir": &c.PodLogsDir, "node-name": &c.NodeName,
	} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			*to = flag.Value.String()
		}
	}
	for _, path := range []*string{&c.RootDirectory, &c.RunDirectory, &c.StaticPodPath, &c.PodLogsDir} {
		if *path, err = absolute(*path); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := setVerbosity(f.verbosity); err != nil {
		return &exitError{exitUsage, err}
	}
	c, err := f.load(cmd)
	if err != nil {
		return &exitError{exitConfig, err}
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
	return supervise(cmd.Context(), notifier, supervised{a.Stalled, a.Narrator().Line}, func(ready func()) error {
		return a.Run(cmd.Context(), func() {
			ready()
			klog.InfoS("nodelet is running", "version", shortVersion(), "root", c.RootDirectory, "manifests", c.StaticPodPath, "runtime", c.ContainerRuntimeEndpoint)
		})
	})
}

func setVerbosity(v int) error {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(v))
}
