package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/logs"
	"nodelet.dev/nodelet/internal/preflight"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look whether this machine is ready for the agent",
		Long: `Look at the machine, the container runtime and the configuration that an agent
with the same flags and environment would use, and say what to mend. Nothing is
changed. It exits with 1 if something fails; a warning is no failure.`,
		Example: `  sudo nodelet check
  sudo nodelet check -o json | jq '.[] | select(.status == "fail")'`,
		Args: noArgs,
	}
	addConfigFlags(cmd.Flags())
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		machine, err := preflight.This()
		if err != nil {
			return err
		}
		results := check(cmd.Context(), cmd, machine)
		if out.machine() {
			err = out.print(cmd.OutOrStdout(), results)
		} else {
			err = printCheck(cmd.OutOrStdout(), results, colored(cmd.OutOrStdout()))
		}
		if failed := tally(results, preflight.Fail); failed > 0 && err == nil {
			return fmt.Errorf("%s failed", count(failed, "check"))
		}
		return err
	}
	return cmd
}

// check looks at the configuration first, since the rest depends on it.
func check(ctx context.Context, cmd *cobra.Command, machine preflight.Machine) []preflight.Result {
	l, err := loadConfig(cmd)
	if err != nil {
		results := configFaults(err)
		return append(results, preflight.Run(ctx, preflight.Options{Machine: machine})...)
	}
	c := l.Config
	return append([]preflight.Result{configResult(&l)}, preflight.Run(ctx, preflight.Options{Machine: machine, Settings: &preflight.Settings{
		RootDirectory: c.RootDirectory, PodLogsDir: c.PodLogsDir,
		RuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageEndpoint: c.ImageServiceEndpoint,
	}})...)
}

const checkConfig = "config"

// configFaults is a failure for each fault of the configuration.
func configFaults(err error) []preflight.Result {
	const fix = "correct it, and run the check again: what depends on the configuration was not looked at"
	faults, are := errors.AsType[config.Errors](err)
	if !are {
		return []preflight.Result{{Name: checkConfig, Status: preflight.Fail, Message: err.Error(), Fix: fix}}
	}
	results := make([]preflight.Result, 0, len(faults))
	for _, f := range faults {
		results = append(results, preflight.Result{Name: checkConfig, Status: preflight.Fail, Message: f.Error(), Fix: fix})
	}
	return results
}

// configResult tells which files made the configuration, and what in them has no
// effect.
func configResult(l *config.Loaded) preflight.Result {
	if list := notices(l); len(list) > 0 {
		return preflight.Result{
			Name: checkConfig, Status: preflight.Warn, Message: strings.Join(list, "; "),
			Fix: "remove it, or see what is in force: nodelet config view --origin",
		}
	}
	message := "the defaults: no file says anything else"
	if files := configFiles(l); len(files) > 0 {
		message = strings.Join(files, ", ")
	}
	return preflight.Result{Name: checkConfig, Status: preflight.OK, Message: message}
}

// printCheck writes the results as people read them.
func printCheck(w io.Writer, results []preflight.Result, color bool) error {
	width := 0
	for _, r := range results {
		width = max(width, len(r.Name))
	}
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s  %-*s  %s\n", paint(r.Status, color), width, r.Name, strings.ReplaceAll(r.Message, "\n", " "))
		if r.Fix != "" {
			fmt.Fprintf(&b, "      fix: %s\n", r.Fix)
		}
	}
	fmt.Fprintf(&b, "\n%s: %d ok, %d warn, %d fail\n", count(len(results), "check"),
		tally(results, preflight.OK), tally(results, preflight.Warn), tally(results, preflight.Fail))
	_, err := io.WriteString(w, b.String())
	return err
}

// paint returns a status in four columns.
func paint(s preflight.Status, color bool) string {
	text := fmt.Sprintf("%-4s", s)
	if !color {
		return text
	}
	code := map[preflight.Status]string{preflight.OK: "32", preflight.Warn: "33", preflight.Fail: "31"}[s]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func tally(results []preflight.Result, s preflight.Status) int {
	n := 0
	for _, r := range results {
		if r.Status == s {
			n++
		}
	}
	return n
}

// colored reports whether what is written goes to a terminal that shows colours.
func colored(w io.Writer) bool {
	f, is := w.(*os.File)
	return is && logs.IsTerminal(f) && logs.Color(os.Getenv)
}

// configFiles returns the files whose values count, drop-ins last.
func configFiles(l *config.Loaded) []string {
	var origins []config.Origin
	for _, o := range l.Origins {
		o.Line, o.Column = 0, 0
		if (o.Kind == config.FromFile || o.Kind == config.FromDropIn) && !slices.Contains(origins, o) {
			origins = append(origins, o)
		}
	}
	slices.SortFunc(origins, func(a, b config.Origin) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	files := make([]string, 0, len(origins))
	for _, o := range origins {
		files = append(files, o.Name)
	}
	return files
}
