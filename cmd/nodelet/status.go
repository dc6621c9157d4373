package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/server"
	"nodelet.dev/nodelet/internal/status"
)

// statusView is the answer of the status command for programs.
type statusView struct {
	server.Status `json:",inline"`

	Pods []corev1.Pod `json:"pods"`
}

func statusCommand() *cobra.Command {
	var runDir string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the agent, its sources and its pods",
		Example: "  nodelet status\n  nodelet status -o json | jq '.pods[].status.phase'",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&runDir, "run-dir", config.Default().RunDirectory, "directory of the agent's socket")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := newClient(runDir)
		var st server.Status
		if err := c.get(cmd.Context(), "/status", &st); err != nil {
			return err
		}
		var pods corev1.PodList
		if err := c.get(cmd.Context(), "/pods", &pods); err != nil {
			return err
		}
		if out.machine() {
			return out.print(cmd.OutOrStdout(), statusView{Status: st, Pods: pods.Items})
		}
		return printStatus(cmd.OutOrStdout(), st, pods.Items, time.Now())
	}
	return cmd
}

// printStatus writes the status as people read it.
func printStatus(w io.Writer, st server.Status, pods []corev1.Pod, now time.Time) error {
	fmt.Fprintf(w, "nodelet %s on node %s, up %s\n", st.Version, st.Node, duration.HumanDuration(now.Sub(st.Started)))
	if st.Problem != "" {
		fmt.Fprintf(w, "problem  %s\n", st.Problem)
		return nil
	}
	printConfig(w, st)
	switch r := st.Runtime; {
	case r.Name == "":
		fmt.Fprintf(w, "runtime  %s: %s\n", r.Endpoint, r.Problem)
	case r.Problem != "":
		fmt.Fprintf(w, "runtime  %s %s at %s: %s\n", r.Name, r.Version, r.Endpoint, r.Problem)
	default:
		fmt.Fprintf(w, "runtime  %s %s at %s, events from %s\n", r.Name, r.Version, r.Endpoint, r.Events)
	}
	for _, s := range st.Sources {
		if s.Delivered {
			fmt.Fprintf(w, "source   %s %s: %s\n", s.Name, s.Origin, count(s.Pods, "pod"))
		} else {
			fmt.Fprintf(w, "source   %s %s: has not delivered yet\n", s.Name, s.Origin)
		}
		for _, p := range s.Problems {
			fmt.Fprintf(w, "         ! %s\n", p)
		}
	}
	fmt.Fprintln(w)
	if len(pods) == 0 {
		fmt.Fprintln(w, "no pods")
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE\tWHY")
	for i := range pods {
		row := status.RowOf(&pods[i])
		age := "<unknown>"
		if t := pods[i].CreationTimestamp; !t.IsZero() {
			age = duration.HumanDuration(now.Sub(t.Time))
		}
		fmt.Fprintf(table, "%s\t%s\t%d/%d\t%s\t%d\t%s\t%s\n", pods[i].Namespace, pods[i].Name, row.Ready, row.Total, row.Status, row.Restarts, age, row.Why)
	}
	return table.Flush()
}

// printConfig tells what of the configuration is not in force.
func printConfig(w io.Writer, st server.Status) {
	if st.ConfigProblem != "" {
		fmt.Fprintf(w, "config   the last good one stays in force\n         ! %s\n", strings.ReplaceAll(st.ConfigProblem, "\n", "\n           "))
	}
	if len(st.NeedsRestart) > 0 {
		fmt.Fprintf(w, "config   a restart applies: %s\n", strings.Join(st.NeedsRestart, ", "))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
