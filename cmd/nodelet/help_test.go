package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// visible returns all commands that people see, with their parents first.
func visible(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			list = append(list, visible(sub)...)
		}
	}
	return list
}

// TestHelp: every command says in a line what it does, has an example, and its
// help fits a screen of 40 lines and 100 columns.
func TestHelp(t *testing.T) {
	top := root()
	top.InitDefaultHelpCmd()
	commands := visible(top)
	require.Greater(t, len(commands), 5)
	for _, cmd := range commands {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			require.NotEmpty(t, cmd.Short)
			require.False(t, strings.HasSuffix(cmd.Short, "."), "it is a title: %s", cmd.Short)
			require.NotEmpty(t, cmd.Example)
			for line := range strings.Lines(cmd.Example) {
				require.True(t, strings.HasPrefix(line, "  ") || strings.TrimSpace(line) == "", "examples are indented: %q", line)
			}
			var out bytes.Buffer
			cmd.InitDefaultHelpFlag()
			cmd.SetOut(&out)
			require.NoError(t, cmd.Help())
			lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
			require.LessOrEqual(t, len(lines), 40, out.String())
			for _, line := range lines {
				require.LessOrEqual(t, len(line), 100, line)
			}
		})
	}
}

// TestNearestFlag: a flag that is nearly right is named, one that is nothing like
// it is not.
func TestNearestFlag(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	for _, name := range []string{"root-dir", "run-dir", "static-pod-path", "secret"} {
		cmd.Flags().String(name, "", "")
	}
	require.NoError(t, cmd.Flags().MarkHidden("secret"))
	for given, want := range map[string]string{
		"statc-pod-path": "static-pod-path", "root-dirr": "root-dir", "rundir": "run-dir", "secrets": "", "kubeconfig": "",
	} {
		require.Equal(t, want, nearestFlag(cmd, given), given)
	}
}
