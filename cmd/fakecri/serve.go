package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

const example = `  # 500 pods of three containers that somebody else made, and events as on containerd 2.4
  fakecri --socket /tmp/fakecri.sock --pods 500 --containers 3

  # starting takes 300 ms, everything else 2 ms; the reply of every first start of "web" is lost
  fakecri --socket /tmp/fakecri.sock --latency 2ms --latency RunPodSandbox=300ms \
    --fault 'StartContainer container=web mode=after'

  # an agent on it
  nodelet run --runtime-endpoint unix:///tmp/fakecri.sock`

// settings are what the flags say.
type settings struct {
	socket     string
	flavor     string
	pods       int
	containers int
	latencies  []string
	faults     []string
	images     []string
	events     bool
	logFiles   bool
}

// madeImage is what containers of pre-made pods run.
const madeImage = "nodelet.local/premade:1"

func command() *cobra.Command {
	var set settings
	cmd := &cobra.Command{
		Use:   "fakecri --socket PATH",
		Short: "Serve a CRI runtime in memory",
		Long: "fakecri serves CRI v1 on a unix socket and keeps pods and containers in memory, as containerd would.\n" +
			"Containers run small programs in memory: sleep, true, false and sh -c with a few commands.\n\n" +
			"A fault is one line: the name of a call or *, then key=value words. Keys: container, uid, image (which calls);\n" +
			"nth, times (which of them, -1 for all); mode (before, after, late, hang, hang-after, slow); code, message (the\n" +
			"error); delay (for late and slow).",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), set, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&set.socket, "socket", "", "unix socket to serve on (required)")
	flags.StringVar(&set.flavor, "flavor", string(fakecri.Containerd24), "release of containerd to follow: 1.6 or 2.4")
	flags.IntVar(&set.pods, "pods", 0, "how many running pods to start with")
	flags.IntVar(&set.containers, "containers", 1, "how many containers each of them has")
	flags.StringArrayVar(&set.latencies, "latency", nil, "how long calls take: a duration for all, or CALL=DURATION; may be repeated")
	flags.StringArrayVar(&set.faults, "fault", nil, "a fault, in one line; may be repeated")
	flags.StringArrayVar(&set.images, "image", nil, "an image that is on the machine; every other one can be pulled; may be repeated")
	flags.BoolVar(&set.events, "events", true, "serve GetContainerEvents")
	flags.BoolVar(&set.logFiles, "log-files", false, "write container logs where pods ask for them")
	if err := cmd.MarkFlagRequired("socket"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func serve(ctx context.Context, set settings, out io.Writer) error {
	options, err := set.options()
	if err != nil {
		return err
	}
	server := fakecri.New(options)
	defer server.Close()
	if err := premake(ctx, server, set.pods, set.containers); err != nil {
		return err
	}
	for _, line := range set.faults {
		fault, err := fakecri.ParseFault(line)
		if err != nil {
			return err
		}
		server.Inject(fault)
	}
	if err := server.Listen(set.socket); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "fakecri: containerd %s on unix://%s, %d pods; end with Ctrl-C\n", options.Flavor, set.socket, set.pods); err != nil {
		return fmt.Errorf("cannot write to standard output: %w", err)
	}
	<-ctx.Done()
	return report(out, server)
}

func (set settings) options() (fakecri.Options, error) {
	o := fakecri.Options{
		Flavor: fakecri.Flavor(set.flavor), NoEvents: !set.events, PullAny: true, LogFiles: set.logFiles,
		Images:  []fakecri.Image{{Ref: madeImage, Present: true}},
		Latency: map[string]time.Duration{},
	}
	if o.Flavor != fakecri.Containerd16 && o.Flavor != fakecri.Containerd24 {
		return o, fmt.Errorf("cannot follow flavor %q: want %s or %s", set.flavor, fakecri.Containerd16, fakecri.Containerd24)
	}
	if set.pods < 0 || set.containers < 0 {
		return o, fmt.Errorf("cannot make %d pods of %d containers: the numbers must not be negative", set.pods, set.containers)
	}
	for _, image := range set.images {
		o.Images = append(o.Images, fakecri.Image{Ref: image, Present: true})
	}
	for _, text := range set.latencies {
		call, value, found := strings.Cut(text, "=")
		if !found {
			call, value = "", text
		}
		latency, err := time.ParseDuration(value)
		if err != nil {
			return o, fmt.Errorf("cannot read latency %q: %w", text, err)
		}
		o.Latency[call] = latency
	}
	return o, nil
}

// premake calls the services directly, so that the pods are like any other, but cost no latency and count as no call.
func premake(ctx context.Context, server *fakecri.Server, pods, containers int) error {
	for i := range pods {
		config := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{
				Name: fmt.Sprintf("premade-%d", i), Namespace: "fakecri", Uid: fmt.Sprintf("fakecri-premade-%d", i),
			},
			Labels: map[string]string{"app": "premade"},
		}
		sandbox, err := server.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			return fmt.Errorf("cannot make pod %s: %w", config.GetMetadata().GetName(), err)
		}
		for j := range containers {
			created, err := server.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
				PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: config,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("c%d", j)},
					Image:    &runtimeapi.ImageSpec{Image: madeImage},
				},
			})
			if err != nil {
				return fmt.Errorf("cannot make a container of pod %s: %w", config.GetMetadata().GetName(), err)
			}
			if _, err := server.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()}); err != nil {
				return fmt.Errorf("cannot start a container of pod %s: %w", config.GetMetadata().GetName(), err)
			}
		}
	}
	return nil
}

// report prints how often each call was made, which is what a scale test wants to know.
func report(out io.Writer, server *fakecri.Server) error {
	counts := map[string]int{}
	for _, call := range server.Calls() {
		counts[call.RPC]++
	}
	var text strings.Builder
	for _, rpc := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%8d %s\n", counts[rpc], rpc)
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("cannot write to standard output: %w", err)
	}
	return nil
}
