package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/preflight"
)

func TestPrintCheck(t *testing.T) {
	results := []preflight.Result{
		{Name: "root", Status: preflight.OK, Message: "running as uid 0"},
		{Name: "clock", Status: preflight.Warn, Message: "it says\n1970", Fix: "set it"},
		{Name: "cni config", Status: preflight.Fail, Message: "no network configuration in /etc/cni/net.d", Fix: "write one"},
	}
	var out bytes.Buffer
	require.NoError(t, printCheck(&out, results, false))
	require.Equal(t, `ok    root        running as uid 0
warn  clock       it says 1970
      fix: set it
fail  cni config  no network configuration in /etc/cni/net.d
      fix: write one

3 checks: 1 ok, 1 warn, 1 fail
`, out.String())
	out.Reset()
	require.NoError(t, printCheck(&out, results, true))
	require.Contains(t, out.String(), "\x1b[32mok  \x1b[0m  root  ")
	require.Contains(t, out.String(), "\x1b[33mwarn\x1b[0m  clock")
	require.Contains(t, out.String(), "\x1b[31mfail\x1b[0m  cni config")
}

// TestColored: only a terminal shows colours.
func TestColored(t *testing.T) {
	require.False(t, colored(&bytes.Buffer{}))
	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	require.False(t, colored(file))
	require.NoError(t, file.Close())
}
