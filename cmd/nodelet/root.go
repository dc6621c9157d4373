package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = ""

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodelet",
		Short: "Run Kubernetes Pods on one machine, without a control plane",
		Long: `nodelet keeps the Pods of a manifest directory running on this machine, through
a container runtime such as containerd. It needs no control plane.`,
		Example: `  nodelet run --static-pod-path /etc/nodelet/manifests
  nodelet status`,
		// Cobra's own check of names would not say that the usage is at fault.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, "command", args[0])
			}
			return cmd.Help()
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versionText(),
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	cmd.AddCommand(runCommand(), statusCommand(), configCommand())
	return cmd
}

// noArgs refuses arguments that a command does not have.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknown(cmd, "argument", args[0])
	}
	return nil
}

func unknown(cmd *cobra.Command, what, given string) error {
	err := fmt.Errorf("unknown %s %q for %q, see %s --help", what, given, cmd.CommandPath(), cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(given); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, near[0])
	}
	return &exitError{exitUsage, err}
}

func versionText() string {
	revision, date := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.time":
				date = s.Value
			}
		}
	}
	return fmt.Sprintf("nodelet %s (commit %s, %s, %s, %s/%s)", shortVersion(), revision, date, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

func shortVersion() string {
	if version == "" {
		return "v0.0.0-dev"
	}
	return version
}
