package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func logs(s *suite) {
	p := s.runPod("logs")
	id := s.run(p, "main", "sh", "-c", `echo to stdout; echo to stderr >&2; while true; do sleep 0.2; echo tick; done`)
	s.waitLog(p, "main", "tick")
	path := filepath.Join(p.config.GetLogDirectory(), "main.log")
	data, err := os.ReadFile(path)
	require.NoError(s, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		require.Len(s, fields, 4, line)
		_, err := time.Parse(time.RFC3339Nano, fields[0])
		require.NoError(s, err, line)
		seen[strings.Join(fields[1:], " ")] = true
	}
	require.True(s, seen["stdout F to stdout"], string(data))
	require.True(s, seen["stderr F to stderr"], string(data))

	require.NoError(s, os.Rename(path, path+".1"))
	_, err = s.ReopenContainerLog(s.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	require.NoError(s, err)
	s.waitLog(p, "main", "tick")

	require.NoError(s, s.stop(s.ctx, id, 0))
	_, err = s.ReopenContainerLog(s.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	require.Equal(s, codes.Unknown, s.code(err), "it does not run")
}

func exec(s *suite) {
	p := s.runPod("exec")
	id := s.run(p, "main", "sleep", "1000")
	call := func(timeoutSeconds int64, command ...string) (*runtimeapi.ExecSyncResponse, error) {
		return s.ExecSync(s.ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: timeoutSeconds})
	}
	got, err := call(60, "sh", "-c", "echo out; echo err >&2; exit 5")
	require.NoError(s, err, "a command's own failure is no error of the call")
	require.Equal(s, "out\n", string(got.GetStdout()))
	require.Equal(s, "err\n", string(got.GetStderr()))
	require.Equal(s, int32(5), got.GetExitCode())

	_, err = call(0, "true")
	require.NoError(s, err, "zero is no limit")
	_, err = call(1, "sleep", "1000")
	require.Equal(s, codes.DeadlineExceeded, s.code(err), err)
	_, err = call(60, "/no/such/program")
	require.Equal(s, codes.Unknown, s.code(err), err)

	_, err = call(60, "sh", "-c", "echo kept > /tmp/file")
	require.NoError(s, err)
	got, err = call(60, "cat", "/tmp/file")
	require.NoError(s, err)
	require.Equal(s, "kept\n", string(got.GetStdout()))

	require.NoError(s, s.stop(s.ctx, id, 0))
	_, err = call(60, "true")
	require.Equal(s, codes.Unknown, s.code(err), "it does not run")
}

// gather collects events of one pod until the given number has come. Events of other pods are left out.
func (s *suite) gather(stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], uid string, count int) []*runtimeapi.ContainerEventResponse {
	s.Helper()
	var mine []*runtimeapi.ContainerEventResponse
	for len(mine) < count {
		event, err := stream.Recv()
		require.NoError(s, err)
		if event.GetPodSandboxStatus().GetMetadata().GetUid() == uid {
			mine = append(mine, event)
		}
	}
	return mine
}

func events(s *suite) {
	stream, err := s.GetContainerEvents(s.ctx, &runtimeapi.GetEventsRequest{})
	require.NoError(s, err)
	if s.Flavor == Containerd16 {
		_, err := stream.Recv()
		require.Equal(s, codes.Unimplemented, s.code(err))
		return
	}
	p := s.runPod("events")
	id := s.run(p, "main", "sh", "-c", "exit 6")
	s.waitExited(id)
	_, err = s.StopPodSandbox(s.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	require.NoError(s, err)
	_, err = s.RemovePodSandbox(s.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(s, err)

	const (
		createdEvent = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		startedEvent = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stoppedEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deletedEvent = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	kinds := map[string][]runtimeapi.ContainerEventType{}
	for _, event := range s.gather(stream, p.config.GetMetadata().GetUid(), 8) {
		kinds[event.GetContainerId()] = append(kinds[event.GetContainerId()], event.GetContainerEventType())
		require.NotZero(s, event.GetCreatedAt())
		if event.GetContainerId() == id && event.GetContainerEventType() == stoppedEvent {
			require.Equal(s, int32(6), event.GetContainersStatuses()[0].GetExitCode())
		}
	}
	whole := []runtimeapi.ContainerEventType{createdEvent, startedEvent, stoppedEvent, deletedEvent}
	require.Equal(s, whole, kinds[id])
	require.Equal(s, whole, kinds[p.id], "a sandbox's events carry its own id")
}

func restart(s *suite) {
	if s.Restart == nil {
		s.Fatal("cannot test a restart: the target has no Restart")
	}
	p := s.runPod("survivor")
	runs := s.run(p, "runs", "sh", "-c", waitForTERM)
	s.waitLog(p, "runs", "armed")
	ends := s.run(p, "ends", "sh", "-c", "exit 4")
	s.waitExited(ends)
	waits := s.create(p, s.containerConfig("waits", "true"))
	before, ip := s.status(runs), s.podStatus(p.id).GetNetwork().GetIp()

	require.NoError(s, s.Restart(s.ctx))
	s.eventually(func() bool {
		_, err := s.Version(s.ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
		return err == nil
	}, "the runtime should answer again")

	after := s.status(runs)
	require.Equal(s, running, after.GetState())
	require.Equal(s, before.GetStartedAt(), after.GetStartedAt())
	require.Equal(s, ip, s.podStatus(p.id).GetNetwork().GetIp())
	got := s.status(ends)
	require.Equal(s, exited, got.GetState())
	require.Equal(s, int32(4), got.GetExitCode())
	require.Equal(s, created, s.status(waits).GetState())
	_, err := s.tryCreate(p, s.containerConfig("runs", "true"))
	s.requireInUse(err)
	_, err = s.RunPodSandbox(s.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	s.requireInUse(err)
	require.NoError(s, s.tryStart(waits))
	require.Equal(s, int32(0), s.waitExited(waits).GetExitCode())
	require.NoError(s, s.stop(s.ctx, runs, 60))
	require.Equal(s, int32(3), s.status(runs).GetExitCode())
}
