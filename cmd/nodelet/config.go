package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nodelet.dev/nodelet/internal/config"
)

// addConfigFlags gives a command the flags of the configuration.
func addConfigFlags(flags *pflag.FlagSet) {
	flags.String(config.FlagConfig, config.DefaultFile, "configuration file")
	flags.String(config.FlagConfigDir, config.DefaultDir, "directory of drop-ins, *.yaml (with --config: config.d beside that file)")
	values := map[string]string{}
	if l, err := config.Load(config.Sources{}); err == nil { // the defaults
		for _, f := range l.Fields(true) {
			values[f.Field] = fmt.Sprint(f.Value)
		}
	}
	for _, s := range config.Settings() {
		if s.Number {
			flags.IntP(s.Flag, s.Short, 0, s.Usage)
		} else {
			flags.StringP(s.Flag, s.Short, values[s.Field], s.Usage)
		}
	}
}

// loadConfig loads the configuration that the flags of a command, the
// environment and the files make.
func loadConfig(cmd *cobra.Command) (config.Loaded, error) {
	given := map[string]string{}
	names := []string{config.FlagConfig, config.FlagConfigDir}
	for _, s := range config.Settings() {
		names = append(names, s.Flag)
	}
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			given[name] = f.Value.String()
		}
	}
	l, err := config.Load(config.Find(os.Environ(), given))
	if err != nil {
		return l, &exitError{exitConfig, err}
	}
	return l, nil
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Show the configuration",
		Example: "  nodelet config view --origin",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, "command", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(configViewCommand())
	return cmd
}

func configViewCommand() *cobra.Command {
	var origin, raw bool
	cmd := &cobra.Command{
		Use:   "view",
		Short: "Print the configuration that files, environment and flags make",
		Long: `Print the configuration that an agent with the same flags and environment would
use: a flag goes over a variable, that over a drop-in, that over the file, and
that over the default. It needs no agent. What cannot be used is told as an
error, and what has no effect on standard error.`,
		Example: `  nodelet config view --origin
  nodelet config view --config ./config.yaml -o json`,
		Args: noArgs,
	}
	addConfigFlags(cmd.Flags())
	cmd.Flags().BoolVar(&origin, "origin", false, "say of each value where it comes from")
	cmd.Flags().BoolVar(&raw, "raw", false, "show passwords and headers too")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		for _, w := range notices(&l) {
			fmt.Fprintln(cmd.ErrOrStderr(), w)
		}
		if out.format != outputJSON {
			text, err := l.YAML(raw, origin)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		}
		if origin {
			return out.print(cmd.OutOrStdout(), l.Fields(raw))
		}
		return out.print(cmd.OutOrStdout(), l.Values(raw))
	}
	return cmd
}

// notices tells what in a configuration has no effect.
func notices(l *config.Loaded) []string {
	list := append([]string(nil), l.Warnings...)
	for _, i := range l.Ignored {
		list = append(list, fmt.Sprintf("%s: %s is ignored: nodelet does not have this field of KubeletConfiguration", i.Origin, i.Field))
	}
	return list
}
