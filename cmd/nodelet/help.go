package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says that the usage is at fault, and names the flag that was likely
// meant by one that does not exist.
func flagError(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && missing.GetSpecifiedShortnames() == "" {
		if near := nearestFlag(cmd, missing.GetSpecifiedName()); near != "" {
			err = fmt.Errorf("%w (did you mean --%s?)", err, near)
		}
	}
	return &exitError{exitUsage, fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

// nearestFlag returns the flag of a command that differs least from a name.
// Cobra can find commands that are near, so the flags dress up as commands.
func nearestFlag(cmd *cobra.Command, given string) string {
	names := &cobra.Command{Use: "flags"}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	for distance := range 3 {
		names.SuggestionsMinimumDistance = distance + 1
		if near := names.SuggestionsFor(given); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}

// helpCommand is cobra's, with an example.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [command]",
		Short:   "Show the help of a command",
		Long:    "Show the help of a command, as its flag --help does.",
		Example: "  nodelet help run",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && cmd.HasSubCommands() {
				return unknown(root, "command", args[len(args)-max(len(rest), 1)])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			cmd, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// completionCommand is cobra's four commands in one that fits a screen.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Write the completion script of a shell",
		Long: `Write the script that completes the commands and flags of nodelet in a shell.
make install puts it where bash, zsh and fish look for it.`,
		Example: `  source <(nodelet completion bash)
  nodelet completion zsh > "${fpath[1]}/_nodelet"
  nodelet completion fish > ~/.config/fish/completions/nodelet.fish`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &exitError{exitUsage, fmt.Errorf("cannot write a completion script: %d shells are given instead of one, see %s --help", len(args), cmd.CommandPath())}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			case "fish":
				return cmd.Root().GenFishCompletion(out, true)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(out)
			}
			return &exitError{exitUsage, fmt.Errorf("cannot write a completion script for %q: it is one of bash, zsh, fish and powershell", args[0])}
		},
	}
}
