package fakecri_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

const shop = "uid-shop"

// bench is a fake runtime in a bubble with one sandbox.
type bench struct {
	*fakecri.Server
	t       *testing.T
	cri     runtimeapi.RuntimeServiceClient
	sandbox string
	config  *runtimeapi.PodSandboxConfig
}

func inBubble(t *testing.T, o fakecri.Options, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Images = append(o.Images, fakecri.Image{Ref: "till:1", Present: true})
		s := fakecri.New(o)
		defer s.Close()
		conn, err := s.Dial()
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		b := &bench{Server: s, t: t, cri: runtimeapi.NewRuntimeServiceClient(conn)}
		b.config = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "shop", Namespace: "town", Uid: shop}}
		run, err := b.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: b.config})
		require.NoError(t, err)
		b.sandbox = run.GetPodSandboxId()
		test(b)
	})
}

func (b *bench) create(ctx context.Context, name string, attempt uint32, command ...string) (string, error) {
	made, err := b.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: b.sandbox, SandboxConfig: b.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: "till:1"},
			Command:  command,
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			}},
		},
	})
	return made.GetContainerId(), err
}

func (b *bench) start(t *testing.T, name string, attempt uint32, command ...string) string {
	t.Helper()
	id, err := b.create(t.Context(), name, attempt, command...)
	require.NoError(t, err)
	_, err = b.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	return id
}

func (b *bench) stop(ctx context.Context, id string, seconds int64) error {
	_, err := b.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

func TestProgramsDecideHowAStopEnds(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		code    int
		took    time.Duration
	}{
		"PID 1 without a trap ignores TERM":   {[]string{"sleep", "1000"}, 137, 20 * time.Second},
		"a trap interrupts wait":              {[]string{"sh", "-c", `trap "exit 3" TERM; sleep 1000 & wait`}, 3, 0},
		"a trap takes its time":               {[]string{"sh", "-c", `trap 'sleep 4; exit 0' TERM; sleep 1000 & wait`}, 0, 4 * time.Second},
		"a trap waits for a foreground sleep": {[]string{"sh", "-c", `trap 'exit 3' TERM; sleep 12`}, 3, 12 * time.Second},
		"an empty trap ignores TERM":          {[]string{"sh", "-c", `trap '' TERM; sleep 1000 & wait`}, 137, 20 * time.Second},
		"a loop goes on after a trap":         {[]string{"sh", "-c", `trap 'echo no' TERM; while true; do sleep 1; done`}, 137, 20 * time.Second},
		"an image's own program":              {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakecri.Options{}, func(b *bench) {
				t := b.t
				id := b.start(t, "c", 0, c.command...)
				began := time.Now()
				require.NoError(t, b.stop(t.Context(), id, 20))
				took := time.Since(began)
				require.Equal(t, c.took, took.Truncate(time.Second))
				require.Equal(t, int32(c.code), b.Snapshot().Containers[0].ExitCode)
			})
		})
	}
}

func TestCommandsOfTheShell(t *testing.T) {
	for script, want := range map[string]string{
		`echo a && false || echo b; echo c`:                        "a\nb\nc\n",
		`if [ -f /x ]; then echo yes; else echo no; fi`:            "no\n",
		`echo one > /x; echo two >> /x; cat /x; rm /x; test -f /x`: "one\ntwo\n",
		`echo '$HOME' "$HOME" ${HOME}`:                             "$HOME / /\n",
		"echo a\necho b; exit 4; echo c":                           "a\nb\n",
		`[ "$HOME" = / ] && echo same`:                             "same\n",
	} {
		t.Run(script, func(t *testing.T) {
			inBubble(t, fakecri.Options{Programs: map[string]fakecri.Program{
				"c": func(ctx context.Context, p *fakecri.Process) int { p.Env["HOME"] = "/"; <-ctx.Done(); return 0 },
			}}, func(b *bench) {
				t := b.t
				id := b.start(t, "c", 0)
				synctest.Wait()
				out, err := b.cri.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}})
				require.NoError(t, err)
				require.Equal(t, want, string(out.GetStdout()))
			})
		})
	}
}

func TestFaults(t *testing.T) {
	start := func(b *bench, ctx context.Context, id string) error {
		_, err := b.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		return err
	}
	for name, c := range map[string]struct {
		fault      fakecri.Fault
		code       codes.Code
		startsSoon int
		startsEver int
	}{
		"before": {fakecri.Fault{Mode: fakecri.FailBefore}, codes.Unavailable, 0, 0},
		"after":  {fakecri.Fault{Mode: fakecri.FailAfter, Err: status.Error(codes.Internal, "lost")}, codes.Internal, 1, 1},
		"late":   {fakecri.Fault{Mode: fakecri.Late, Delay: time.Minute}, codes.DeadlineExceeded, 0, 1},
		"hang":   {fakecri.Fault{Mode: fakecri.HangBefore}, codes.DeadlineExceeded, 0, 0},
		"lost":   {fakecri.Fault{Mode: fakecri.HangAfter}, codes.DeadlineExceeded, 1, 1},
		"slow":   {fakecri.Fault{Mode: fakecri.Slow, Delay: time.Second}, codes.OK, 1, 1},
		"other":  {fakecri.Fault{Container: "another"}, codes.OK, 1, 1},
		"second": {fakecri.Fault{Nth: 2}, codes.OK, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakecri.Options{}, func(b *bench) {
				t := b.t
				c.fault.RPC = "StartContainer"
				b.Inject(c.fault)
				id, err := b.create(t.Context(), "c", 0, "sleep", "1000")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				require.Equal(t, c.code, status.Code(start(b, ctx, id)))
				synctest.Wait()
				key := fakecri.AttemptKey{UID: shop, Name: "c"}
				require.Equal(t, c.startsSoon, b.Starts(key))
				time.Sleep(time.Hour / 10)
				require.Equal(t, c.startsEver, b.Starts(key))
			})
		})
	}
}

func TestACallerThatGivesUpLeavesTheContainerAfterTERM(t *testing.T) {
	inBubble(t, fakecri.Options{}, func(b *bench) {
		t := b.t
		id := b.start(t, "c", 0, "sh", "-c", `trap 'sleep 5; exit 9' TERM; sleep 1000 & wait`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, codes.DeadlineExceeded, status.Code(b.stop(ctx, id, 60)))
		require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, b.Snapshot().Containers[0].State)
		require.NoError(t, b.stop(t.Context(), id, 60))
		require.Equal(t, int32(9), b.Snapshot().Containers[0].ExitCode)
	})
}

func TestCrashRebootWipe(t *testing.T) {
	inBubble(t, fakecri.Options{}, func(b *bench) {
		t := b.t
		b.start(t, "c", 0, "sleep", "1000")
		list := func() error {
			_, err := b.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}, grpc.WaitForReady(false))
			return err
		}
		b.Crash()
		require.Equal(t, codes.Unavailable, status.Code(list()))
		require.Contains(t, b.Snapshot().String(), "container c attempt=0 running")
		require.NoError(t, b.Resume())
		require.Eventually(t, func() bool { return list() == nil }, time.Minute, time.Second)

		b.Reboot()
		require.NoError(t, b.Resume())
		require.Equal(t, "sandbox town/shop uid=uid-shop attempt=0 notready\n  container c attempt=0 exited code=255 Unknown\n",
			b.Snapshot().String())
		b.Wipe()
		require.Empty(t, b.Snapshot().String())
	})
}

func TestEventsReachEverySubscriberAndLateOnes(t *testing.T) {
	inBubble(t, fakecri.Options{}, func(b *bench) {
		t := b.t
		receive := func(stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], count int) (kinds []runtimeapi.ContainerEventType) {
			for range count {
				event, err := stream.Recv()
				require.NoError(t, err)
				kinds = append(kinds, event.GetContainerEventType())
			}
			return kinds
		}
		const created, started = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		first, err := b.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		require.NoError(t, err)
		require.Equal(t, []runtimeapi.ContainerEventType{created, started}, receive(first, 2), "kept while nobody listened")
		second, err := b.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		require.NoError(t, err)
		synctest.Wait()
		b.Inject(fakecri.Fault{RPC: "Event", Container: "c", Nth: 2})
		b.start(t, "c", 0, "true")
		stopped := runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		require.Equal(t, []runtimeapi.ContainerEventType{created, stopped}, receive(first, 2), "the second was lost")
		require.Equal(t, []runtimeapi.ContainerEventType{created, stopped}, receive(second, 2))
	})
}

func TestCounters(t *testing.T) {
	inBubble(t, fakecri.Options{}, func(b *bench) {
		t := b.t
		b.start(t, "c", 0, "sleep", "10")
		b.start(t, "c", 1, "sleep", "10")
		key := fakecri.ContainerKey{UID: shop, Name: "c"}
		require.Equal(t, 2, b.MaxRunning(key))
		time.Sleep(time.Minute)
		b.start(t, "c", 2, "oom")
		synctest.Wait()
		require.Equal(t, 2, b.MaxRunning(key))
		require.Equal(t, 3, b.TotalStarts(key))
		require.Equal(t, "OOMKilled", b.Snapshot().Containers[2].Reason)
		require.Error(t, b.ExitNamed(key, 1, ""))
		calls := b.Calls()
		last := calls[len(calls)-1]
		require.Equal(t, "StartContainer", last.RPC)
		require.Equal(t, []any{"c", shop, uint32(2)}, []any{last.Container, last.UID, last.Attempt})
	})
}

func TestPullTakesItsTimeAndSeesChanges(t *testing.T) {
	inBubble(t, fakecri.Options{Images: []fakecri.Image{{Ref: "slow:1", PullLatency: time.Minute}}}, func(b *bench) {
		t := b.t
		conn, err := b.Dial()
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		images := runtimeapi.NewImageServiceClient(conn)
		pull := func() error {
			_, err := images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "slow:1"}})
			return err
		}
		began := time.Now()
		require.NoError(t, pull())
		require.Equal(t, time.Minute, time.Since(began))
		ended := make(chan error)
		go func() { ended <- pull() }()
		time.Sleep(time.Second)
		b.SetImage(fakecri.Image{Ref: "slow:1", PullError: status.Error(codes.Unavailable, "registry is down")})
		require.Equal(t, codes.Unavailable, status.Code(<-ended))
	})
}

func TestWhatATestDoesBehindTheAgentsBack(t *testing.T) {
	inBubble(t, fakecri.Options{}, func(b *bench) {
		t := b.t
		id := b.start(t, "c", 0, "sleep", "1000")
		ready := func() int32 {
			out, err := b.cri.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"cat", "/ready"}})
			require.NoError(t, err)
			return out.GetExitCode()
		}
		require.Equal(t, int32(1), ready())
		require.NoError(t, b.WriteFile(id, "/ready", "yes"))
		require.Equal(t, int32(0), ready())
		require.NoError(t, b.RemoveFile(id, "/ready"))
		require.Equal(t, int32(1), ready())

		require.NoError(t, b.KillSandbox(b.sandbox))
		require.Equal(t, "sandbox town/shop uid=uid-shop attempt=0 notready\n  container c attempt=0 running\n", b.Snapshot().String())
		require.NoError(t, b.Exit(id, 77, ""))
		require.Error(t, b.Exit(id, 77, ""), "it has ended")
		require.Equal(t, int32(77), b.Snapshot().Containers[0].ExitCode)

		remove := b.Inject(fakecri.Fault{RPC: "Status", Times: -1})
		call := func() error {
			_, err := b.cri.Status(t.Context(), &runtimeapi.StatusRequest{})
			return err
		}
		require.Error(t, call())
		remove()
		require.NoError(t, call())
		b.Inject(fakecri.Fault{RPC: "Status", Times: -1})
		b.ClearFaults()
		require.NoError(t, call())
	})
}
