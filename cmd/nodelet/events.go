package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/server"
)

// eventFlags are what the events command was asked for.
type eventFlags struct {
	runDir string
	watch  bool
	types  string
	out    *output
}

func eventsCommand() *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "events [POD | NAMESPACE/POD]",
		Short: "Show what happened to the pods and to the node, and why",
		Long: `Show the events of the last hour, 1000 at most, the newest at the end. They outlive
the agent, and are in the journal too.`,
		Example: `  nodelet events
  nodelet events web --watch
  nodelet events shop/web --type Warning -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return unknown(cmd, "argument", args[1])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.runDir, "run-dir", config.Default().RunDirectory, "directory of the agent's socket")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "show also what happens from now on, until interrupted")
	cmd.Flags().StringVar(&f.types, "type", "", "only events of this type: Normal or Warning")
	f.out = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		query, err := f.query(args)
		if err != nil {
			return err
		}
		err = f.run(cmd.Context(), cmd.OutOrStdout(), query)
		if f.watch && cmd.Context().Err() != nil {
			err = nil // interrupted, as every watch is
		}
		return err
	}
	return cmd
}

// query returns the selection as the agent understands it.
func (f *eventFlags) query(args []string) (url.Values, error) {
	set := fields.Set{}
	switch f.types {
	case "":
	case corev1.EventTypeNormal, corev1.EventTypeWarning:
		set["type"] = f.types
	default:
		return nil, &exitError{exitUsage, fmt.Errorf("cannot select events of type %q: there are Normal and Warning", f.types)}
	}
	if len(args) > 0 {
		namespace, name, both := strings.Cut(args[0], "/")
		if !both {
			namespace, name = "", namespace
		}
		if name == "" || strings.Contains(name, "/") {
			return nil, &exitError{exitUsage, fmt.Errorf("cannot show the events of %q: give POD or NAMESPACE/POD", args[0])}
		}
		set["involvedObject.kind"], set["involvedObject.name"] = "Pod", name
		if both {
			set["involvedObject.namespace"] = namespace
		}
	}
	return url.Values{"fieldSelector": {set.AsSelector().String()}}, nil
}

func (f *eventFlags) run(ctx context.Context, w io.Writer, query url.Values) error {
	c := newClient(f.runDir)
	var list corev1.EventList
	if err := c.get(ctx, "/events?"+query.Encode(), &list); err != nil {
		return err
	}
	switch {
	case f.out.machine() && !f.watch:
		return f.out.print(w, list)
	case !f.watch && len(list.Items) == 0:
		_, err := fmt.Fprintln(w, "no events in the last hour")
		return err
	case !f.out.machine():
		if err := printEvents(w, list.Items, true, time.Now()); err != nil {
			return err
		}
	default:
		if err := f.each(w, list.Items); err != nil {
			return err
		}
	}
	if !f.watch {
		return nil
	}
	query.Set("watch", "true")
	query.Set("resourceVersion", list.ResourceVersion)
	return f.follow(ctx, w, c, query)
}

// follow prints what happens until ctx ends, or the agent does.
func (f *eventFlags) follow(ctx context.Context, w io.Writer, c *client, query url.Values) error {
	body, err := c.open(ctx, "/events?"+query.Encode())
	if err != nil {
		return err
	}
	changes := json.NewDecoder(body)
	for {
		var change server.WatchEvent
		if err := changes.Decode(&change); err != nil {
			return errors.Join(fmt.Errorf("the agent at %s has ended the watch: %w", c.socket, err), body.Close())
		}
		one := []corev1.Event{change.Object}
		if f.out.machine() {
			err = f.each(w, one)
		} else {
			err = printEvents(w, one, false, time.Now())
		}
		if err != nil {
			return errors.Join(err, body.Close())
		}
	}
}

// each prints events for programs, one document each.
func (f *eventFlags) each(w io.Writer, list []corev1.Event) error {
	for i := range list {
		if f.out.format == outputYAML {
			fmt.Fprintln(w, "---")
		}
		if err := f.out.print(w, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// printEvents writes events as people read them. Without a header it keeps to
// columns of a fixed width, since later lines are not known yet.
func printEvents(w io.Writer, list []corev1.Event, header bool, now time.Time) error {
	if len(list) == 0 && !header {
		return nil
	}
	table := tabwriter.NewWriter(w, 12, 8, 3, ' ', 0)
	if header {
		fmt.Fprintln(table, "LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE")
	}
	for i := range list {
		e := &list[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", lastSeen(e, now), e.Type, e.Reason, objectName(e.InvolvedObject), strings.TrimSpace(e.Message))
	}
	return table.Flush()
}

// lastSeen says how long ago an event happened, and how often.
func lastSeen(e *corev1.Event, now time.Time) string {
	age := func(t metav1.Time) string { return duration.HumanDuration(max(now.Sub(t.Time), 0)) }
	if e.Count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", age(e.LastTimestamp), e.Count, age(e.FirstTimestamp))
	}
	return age(e.LastTimestamp)
}

// objectName names what an event is about, such as shop/web{app} or node/edge.
func objectName(o corev1.ObjectReference) string {
	name := strings.ToLower(o.Kind) + "/" + o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	if at := strings.IndexByte(o.FieldPath, '{'); at >= 0 {
		name += o.FieldPath[at:]
	}
	return name
}
