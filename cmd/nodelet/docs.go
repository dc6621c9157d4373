package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandDoc is a command as packaging/mkdocs reads it. What makes pages of it
// stays out of this program: people who run it do not write manuals.
type commandDoc struct {
	Path     string       `json:"path"`
	Usage    string       `json:"usage"`
	Short    string       `json:"short"`
	Long     string       `json:"long,omitempty"`
	Example  string       `json:"example"`
	Flags    []flagDoc    `json:"flags,omitempty"`
	Commands []commandDoc `json:"commands,omitempty"`
	// Exits are exit codes and what they mean, for the program as a whole.
	Exits [][2]string `json:"exits,omitempty"`
}

type flagDoc struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	Value     string `json:"value,omitempty"` // what it takes; empty for a switch
	Usage     string `json:"usage"`
	Default   string `json:"default,omitempty"`
}

func docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "docs",
		Short:   "Write all commands and flags as JSON",
		Example: "  nodelet docs",
		Hidden:  true,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc := documentation(cmd.Root())
			doc.Exits = exitDocs()
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(doc)
		},
	}
}

func exitDocs() [][2]string {
	var out [][2]string
	for _, e := range []struct {
		code    int
		meaning string
	}{
		{0, "It worked."},
		{exitFailure, "It failed."},
		{exitUsage, "The command line is wrong."},
		{exitUnavailable, "No agent is running that could answer."},
		{exitTemporary, "Another agent holds the root directory."},
		{exitConfig, "The configuration does not allow to start."},
	} {
		out = append(out, [2]string{strconv.Itoa(e.code), e.meaning})
	}
	return out
}

func documentation(cmd *cobra.Command) commandDoc {
	cmd.InitDefaultHelpFlag()
	doc := commandDoc{Path: cmd.CommandPath(), Usage: cmd.UseLine(), Short: cmd.Short, Long: cmd.Long, Example: cmd.Example}
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		flag := flagDoc{Name: f.Name, Shorthand: f.Shorthand, Value: value, Usage: usage}
		if !slices.Contains([]string{"", "0", "false", "[]", "0s"}, f.DefValue) {
			flag.Default = f.DefValue
		}
		doc.Flags = append(doc.Flags, flag)
	})
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && !strings.HasPrefix(sub.Name(), "__") {
			doc.Commands = append(doc.Commands, documentation(sub))
		}
	}
	return doc
}
