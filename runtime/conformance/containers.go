package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

// waitForTERM is a program that says when it can be asked to end, and then ends with code 3.
const waitForTERM = `trap "exit 3" TERM; echo armed; sleep 1000 & wait`

func versionAndStatus(s *suite) {
	version, err := s.Version(s.ctx, &runtimeapi.VersionRequest{})
	require.NoError(s, err)
	require.Equal(s, "v1", version.GetRuntimeApiVersion())
	require.Equal(s, "containerd", version.GetRuntimeName())
	want := "2.4."
	if s.Flavor == Containerd16 {
		want = "1.6."
	}
	require.True(s, strings.HasPrefix(version.GetRuntimeVersion(), want), version.GetRuntimeVersion())

	answer, err := s.Status(s.ctx, &runtimeapi.StatusRequest{})
	require.NoError(s, err)
	ready := map[string]bool{}
	for _, condition := range answer.GetStatus().GetConditions() {
		ready[condition.GetType()] = condition.GetStatus()
	}
	require.True(s, ready[runtimeapi.RuntimeReady])
	require.True(s, ready[runtimeapi.NetworkReady])

	config, err := s.RuntimeConfig(s.ctx, &runtimeapi.RuntimeConfigRequest{})
	if s.Flavor == Containerd16 {
		require.Equal(s, codes.Unimplemented, s.code(err))
		return
	}
	require.NoError(s, err)
	require.Equal(s, runtimeapi.CgroupDriver_CGROUPFS, config.GetLinux().GetCgroupDriver())
}

func lifecycle(s *suite) {
	p := s.runPod("whole-life")
	sandbox := s.podStatus(p.id)
	require.Equal(s, runtimeapi.PodSandboxState_SANDBOX_READY, sandbox.GetState())
	require.NotZero(s, sandbox.GetCreatedAt())

	id := s.create(p, s.containerConfig("main", "sh", "-c", waitForTERM))
	got := s.status(id)
	require.Equal(s, created, got.GetState())
	require.NotZero(s, got.GetCreatedAt())
	require.Zero(s, got.GetStartedAt())
	require.Zero(s, got.GetFinishedAt())

	require.NoError(s, s.tryStart(id))
	got = s.status(id)
	require.Equal(s, running, got.GetState())
	require.GreaterOrEqual(s, got.GetStartedAt(), got.GetCreatedAt())
	require.Zero(s, got.GetFinishedAt())
	require.Empty(s, got.GetReason())

	s.waitLog(p, "main", "armed")
	require.NoError(s, s.stop(s.ctx, id, 60))
	got = s.status(id)
	require.Equal(s, exited, got.GetState())
	require.Equal(s, int32(3), got.GetExitCode())
	require.GreaterOrEqual(s, got.GetFinishedAt(), got.GetStartedAt())

	_, err := s.RemoveContainer(s.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	require.NoError(s, err)
	_, err = s.ContainerStatus(s.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	require.Equal(s, codes.NotFound, s.code(err))
}

func exitCodes(s *suite) {
	p := s.runPod("codes")
	for name, c := range map[string]struct {
		command []string
		code    int32
		reason  string
	}{
		"zero":    {[]string{"true"}, 0, "Completed"},
		"one":     {[]string{"false"}, 1, "Error"},
		"seven":   {[]string{"sh", "-c", "exit 7"}, 7, "Error"},
		"unknown": {[]string{"sh", "-c", "nosuchtool"}, 127, "Error"},
		"later":   {[]string{"sh", "-c", "sleep 0.3; exit 200"}, 200, "Error"},
	} {
		got := s.waitExited(s.run(p, name, c.command...))
		require.Equal(s, c.code, got.GetExitCode(), name)
		require.Equal(s, c.reason, got.GetReason(), name)
		require.NotZero(s, got.GetFinishedAt(), name)
	}
}

func startError(s *suite) {
	p := s.runPod("start-error")
	id := s.create(p, s.containerConfig("main", "/no/such/program"))
	err := s.tryStart(id)
	require.Error(s, err)
	require.NotContains(s, []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, s.code(err))
	got := s.status(id)
	require.Equal(s, exited, got.GetState())
	require.Equal(s, int32(128), got.GetExitCode())
	require.Equal(s, "StartError", got.GetReason())
	require.Contains(s, got.GetMessage(), "/no/such/program")
}

func outOfMemory(s *suite) {
	p := s.runPod("hungry")
	config := s.containerConfig("main", s.OOMCommand...)
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20}
	id := s.create(p, config)
	require.NoError(s, s.tryStart(id))
	got := s.waitExited(id)
	require.Equal(s, "OOMKilled", got.GetReason())
	require.Equal(s, int32(137), got.GetExitCode())
}

func startsOnce(s *suite) {
	p := s.runPod("once")
	id := s.run(p, "main", "sleep", "1000")
	require.Error(s, s.tryStart(id), "it runs")
	require.Equal(s, running, s.status(id).GetState(), "a refused start changes nothing")
	require.NoError(s, s.stop(s.ctx, id, 0))
	require.Error(s, s.tryStart(id), "it has exited")
	require.Equal(s, int32(137), s.status(id).GetExitCode(), "nor does it change how the container ended")
}

func stopAsksFirst(s *suite) {
	p := s.runPod("polite")
	id := s.run(p, "main", "sh", "-c", waitForTERM)
	s.waitLog(p, "main", "armed")
	require.NoError(s, s.stop(s.ctx, id, 600))
	require.Equal(s, int32(3), s.status(id).GetExitCode())
	require.NoError(s, s.stop(s.ctx, id, 600), "once more")
}

func stopKills(s *suite) {
	p := s.runPod("stubborn")
	// Nothing handles TERM in the first process of a process namespace.
	id := s.run(p, "main", "sleep", "1000")
	began := time.Now()
	require.NoError(s, s.stop(s.ctx, id, 2))
	require.GreaterOrEqual(s, time.Since(began), time.Second)
	got := s.status(id)
	require.Equal(s, int32(137), got.GetExitCode())
	require.Equal(s, "Error", got.GetReason())

	id = s.run(p, "second", "sh", "-c", waitForTERM)
	s.waitLog(p, "second", "armed")
	require.NoError(s, s.stop(s.ctx, id, 0))
	require.Equal(s, int32(137), s.status(id).GetExitCode(), "no grace, no question")
}

func stopAbandoned(s *suite) {
	p := s.runPod("abandoned")
	id := s.run(p, "main", "sh", "-c", `trap "sleep 3; exit 9" TERM; echo armed; sleep 1000 & wait`)
	s.waitLog(p, "main", "armed")
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	require.Equal(s, codes.DeadlineExceeded, s.code(s.stop(ctx, id, 600)))
	require.Equal(s, running, s.status(id).GetState())
	require.Equal(s, int32(9), s.waitExited(id).GetExitCode())
}

func stopIdle(s *suite) {
	p := s.runPod("idle")
	id := s.create(p, s.containerConfig("main", "true"))
	require.NoError(s, s.stop(s.ctx, id, 1))
	require.Equal(s, created, s.status(id).GetState(), "a container that never ran is not stopped")
	require.NoError(s, s.tryStart(id))
	s.waitExited(id)
	require.NoError(s, s.stop(s.ctx, id, 1))
	require.Equal(s, int32(0), s.status(id).GetExitCode())
}

func sharedProcesses(s *suite) {
	config := s.podConfig("shared")
	config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	p := s.runPodWith(config)
	container := s.containerConfig("main", "sleep", "1000")
	container.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	id := s.create(p, container)
	require.NoError(s, s.tryStart(id))
	require.NoError(s, s.stop(s.ctx, id, 600))
	require.Equal(s, int32(143), s.status(id).GetExitCode(), "only a namespace's first process ignores TERM")
}

func containerNames(s *suite) {
	p := s.runPod("container-names")
	config := s.containerConfig("main", "true")
	id := s.create(p, config)
	_, err := s.tryCreate(p, config)
	s.requireInUse(err)

	config.Metadata.Attempt = 1
	s.create(p, config)
	_, err = s.RemoveContainer(s.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	require.NoError(s, err)
	config.Metadata.Attempt = 0
	s.create(p, config)

	// The name holds the pod's UID, not the sandbox's id: a second sandbox of the pod shares the names.
	second := s.podConfig("container-names")
	second.Metadata = &runtimeapi.PodSandboxMetadata{
		Name: p.config.GetMetadata().GetName(), Namespace: p.config.GetMetadata().GetNamespace(),
		Uid: p.config.GetMetadata().GetUid(), Attempt: 1,
	}
	_, err = s.tryCreate(s.runPodWith(second), config)
	s.requireInUse(err)
}

// requireInUse: no release answers AlreadyExists, and 1.6 gives this error no class at all. The text is the same.
func (s *suite) requireInUse(err error) {
	s.Helper()
	require.Error(s, err)
	want := codes.FailedPrecondition
	if s.Flavor == Containerd16 {
		want = codes.Unknown
	}
	require.Equal(s, want, s.code(err), err)
	require.Contains(s, err.Error(), "is reserved for")
}

func removeRunning(s *suite) {
	p := s.runPod("remove")
	id := s.run(p, "main", "sleep", "1000")
	_, err := s.RemoveContainer(s.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	require.NoError(s, err)
	_, err = s.ContainerStatus(s.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	require.Equal(s, codes.NotFound, s.code(err))

	s.run(p, "second", "sleep", "1000")
	_, err = s.RemovePodSandbox(s.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(s, err)
	require.Empty(s, s.list(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{markLabel: s.mark}}))
}

func metadataReturns(s *suite) {
	config := s.podConfig("labelled")
	config.Metadata.Attempt = 4
	config.Annotations = map[string]string{"note/sandbox": "a=b\nc"}
	p := s.runPodWith(config)
	container := s.containerConfig("main", "true")
	container.Metadata.Attempt = 6
	container.Annotations = map[string]string{"note/container": "{}"}
	id := s.create(p, container)

	sandbox := s.podStatus(p.id)
	require.Equal(s, uint32(4), sandbox.GetMetadata().GetAttempt())
	require.Equal(s, config.GetMetadata().GetUid(), sandbox.GetMetadata().GetUid())
	require.Equal(s, config.GetLabels(), sandbox.GetLabels())
	require.Equal(s, config.GetAnnotations(), sandbox.GetAnnotations())

	listed := s.list(&runtimeapi.ContainerFilter{Id: id})
	require.Len(s, listed, 1)
	got := s.status(id)
	require.Equal(s, uint32(6), listed[0].GetMetadata().GetAttempt())
	require.Equal(s, uint32(6), got.GetMetadata().GetAttempt())
	require.Equal(s, container.GetLabels(), listed[0].GetLabels())
	require.Equal(s, container.GetLabels(), got.GetLabels())
	require.Equal(s, container.GetAnnotations(), listed[0].GetAnnotations())
	require.Equal(s, container.GetAnnotations(), got.GetAnnotations())
	require.Equal(s, p.id, listed[0].GetPodSandboxId())
	require.Equal(s, s.Image, listed[0].GetImage().GetImage())
	require.Equal(s, config.GetLogDirectory()+"/main.log", got.GetLogPath())
	require.Equal(s, got.GetCreatedAt(), listed[0].GetCreatedAt())
}

func resources(s *suite) {
	p := s.runPod("limits")
	config := s.containerConfig("main", "sleep", "1000")
	config.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 100, MemoryLimitInBytes: 64 << 20}
	id := s.create(p, config)
	require.NoError(s, s.tryStart(id))
	_, err := s.UpdateContainerResources(s.ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 200},
	})
	require.NoError(s, err)
	if s.Flavor == Containerd16 {
		return // it does not report them
	}
	got := s.status(id).GetResources().GetLinux()
	require.Equal(s, int64(200), got.GetCpuShares())
	require.Equal(s, int64(64<<20), got.GetMemoryLimitInBytes())
}
