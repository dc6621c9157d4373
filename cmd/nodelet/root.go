package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

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
	cmd.SetFlagErrorFunc(flagError)
	cmd.CompletionOptions.DisableDefaultCmd = true // ours fits a screen
	cmd.SetHelpCommand(helpCommand(cmd))
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 100"))
	cmd.AddCommand(runCommand(), checkCommand(), statusCommand(), eventsCommand(), configCommand(), imagesCommand(), versionCommand(), completionCommand(), docsCommand())
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
