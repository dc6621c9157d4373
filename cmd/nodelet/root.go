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
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versionText(),
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	cmd.AddCommand(runCommand(), statusCommand())
	return cmd
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
