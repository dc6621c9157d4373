package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEscape: no text can begin a macro or an escape.
func TestEscape(t *testing.T) {
	for given, want := range map[string]string{
		"plain": "plain", "--root-dir": `\-\-root\-dir`, ".so /etc/passwd": `\&.so /etc/passwd`, "'quoted'": `\(aqquoted\(aq`, `a\fBb`: `a\efBb`,
	} {
		require.Equal(t, want, escape(given))
	}
}

// TestProse: paragraphs stay paragraphs, and what is indented stays as it is.
func TestProse(t *testing.T) {
	var p page
	p.prose("One\ntwo.\n\nThree:\n\n  x y\n    z\n\nFour.")
	require.Equal(t, "One\ntwo.\n.PP\nThree:\n.PP\n.PP\n.RS 4\n.nf\nx y\n  z\n.fi\n.RE\n.PP\nFour.\n", p.String())
}

// TestCommandPages: a page for each command, which leads to those above and
// below it.
func TestCommandPages(t *testing.T) {
	pages := commandPages(&command{
		Path: "nodelet", Usage: "nodelet [flags]", Short: "Run pods", Example: "  nodelet", Exits: [][2]string{{"0", "Fine."}},
		Commands: []command{{Path: "nodelet run", Usage: "nodelet run [flags]", Short: "Run the agent", Long: "Run.", Example: "  nodelet run"}},
	})
	require.Len(t, pages, 2)
	require.Contains(t, pages["nodelet.8"], "\\fBnodelet\\-run\\fR(8)\nRun the agent.\n")
	require.Contains(t, pages["nodelet.8"], ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nFine.\n")
	require.Contains(t, pages["nodelet-run.8"], ".SH NAME\nnodelet\\-run \\- Run the agent\n.SH SYNOPSIS\n\\fBnodelet run\\fR [flags]\n")
	require.Contains(t, pages["nodelet-run.8"], ".SH SEE ALSO\n\\fBnodelet\\fR(8), \\fBnodelet.yaml\\fR(5)\n")
	require.NotContains(t, pages["nodelet-run.8"], "EXIT STATUS")
}

// TestConfigFields: the fields come with comments in the words of the file, types
// and defaults, and a wrong place is told.
func TestConfigFields(t *testing.T) {
	fields, err := configFields("../../internal/config")
	require.NoError(t, err)
	byPath := map[string]field{}
	for _, f := range fields {
		byPath[f.path] = f
	}
	require.Equal(t, "rootDirectory holds the durable state and the directories of the pods.", byPath["rootDirectory"].doc)
	require.Equal(t, "/var/lib/nodelet", byPath["rootDirectory"].value)
	require.Equal(t, "duration", byPath["crashLoopBackOff.maxContainerRestartPeriod"].kind)
	require.Equal(t, "map of string to list of string", byPath["staticPodURLHeader"].kind)
	require.Equal(t, "text", byPath["logging.format"].value)
	require.NotContains(t, byPath, "kind")
	_, err = configFields(t.TempDir())
	require.ErrorContains(t, err, "cannot find the type Configuration in ")
}
