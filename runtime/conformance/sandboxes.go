package conformance

import (
	"maps"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func sandboxNames(s *suite) {
	config := s.podConfig("names")
	p := s.runPodWith(config)
	_, err := s.RunPodSandbox(s.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	s.requireInUse(err)

	_, err = s.StopPodSandbox(s.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	require.NoError(s, err)
	_, err = s.RunPodSandbox(s.ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	s.requireInUse(err)

	_, err = s.RemovePodSandbox(s.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	require.NoError(s, err)
	again := s.runPodWith(config)
	require.NotEqual(s, p.id, again.id)

	next := s.podConfig("names")
	next.Metadata.Uid, next.Metadata.Attempt = config.GetMetadata().GetUid(), 1
	s.runPodWith(next)
}

func stopSandbox(s *suite) {
	p := s.runPod("stopped")
	ran := s.run(p, "ran", "sh", "-c", waitForTERM)
	s.waitLog(p, "ran", "armed")
	waits := s.create(p, s.containerConfig("waits", "true"))
	for range 2 {
		_, err := s.StopPodSandbox(s.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		require.NoError(s, err)
	}
	sandbox := s.podStatus(p.id)
	require.Equal(s, runtimeapi.PodSandboxState_SANDBOX_NOTREADY, sandbox.GetState())
	require.Empty(s, sandbox.GetNetwork().GetIp())
	got := s.status(ran)
	require.Equal(s, exited, got.GetState())
	require.Equal(s, int32(137), got.GetExitCode(), "containers get no grace from a sandbox")
	require.Equal(s, created, s.status(waits).GetState())

	require.Error(s, s.tryStart(waits), "nothing starts in a stopped sandbox")
	require.Equal(s, exited, s.status(waits).GetState())
	_, err := s.tryCreate(p, s.containerConfig("late", "true"))
	require.Error(s, err, "nothing is created in a stopped sandbox")
	_, err = s.RemoveContainer(s.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: ran})
	require.NoError(s, err)
}

func notFound(s *suite) {
	refused := map[string]error{}
	_, refused["ContainerStatus"] = s.ContainerStatus(s.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: noSuchID})
	_, refused["PodSandboxStatus"] = s.PodSandboxStatus(s.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: noSuchID})
	_, refused["StartContainer"] = s.StartContainer(s.ctx, &runtimeapi.StartContainerRequest{ContainerId: noSuchID})
	_, refused["ExecSync"] = s.ExecSync(s.ctx, &runtimeapi.ExecSyncRequest{ContainerId: noSuchID, Cmd: []string{"true"}})
	_, refused["UpdateContainerResources"] = s.UpdateContainerResources(s.ctx,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: noSuchID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 2}})
	_, refused["ReopenContainerLog"] = s.ReopenContainerLog(s.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: noSuchID})
	_, refused["ContainerStats"] = s.ContainerStats(s.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: noSuchID})
	_, refused["CreateContainer"] = s.tryCreate(pod{id: noSuchID, config: s.podConfig("none")}, s.containerConfig("main", "true"))
	for rpc, err := range refused {
		require.Equal(s, codes.NotFound, s.code(err), "%s: %v", rpc, err)
	}

	idempotent := map[string]error{}
	_, idempotent["RemoveContainer"] = s.RemoveContainer(s.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: noSuchID})
	_, idempotent["RemovePodSandbox"] = s.RemovePodSandbox(s.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: noSuchID})
	stops := map[string]error{"StopContainer": s.stop(s.ctx, noSuchID, 1)}
	_, stops["StopPodSandbox"] = s.StopPodSandbox(s.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: noSuchID})
	for rpc, err := range stops {
		if s.Flavor == Containerd16 {
			require.Equal(s, codes.NotFound, s.code(err), "%s: %v", rpc, err)
		} else {
			require.NoError(s, err, rpc)
		}
	}
	for rpc, err := range idempotent {
		require.NoError(s, err, rpc)
	}
	require.Empty(s, s.list(&runtimeapi.ContainerFilter{Id: noSuchID}))
}

func (s *suite) list(filter *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	s.Helper()
	answer, err := s.ListContainers(s.ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	require.NoError(s, err)
	return answer.GetContainers()
}

func containerFilters(s *suite) {
	p, other := s.runPod("filters"), s.runPod("other")
	runs := s.run(p, "runs", "sleep", "1000")
	ended := s.run(p, "ended", "true")
	s.waitExited(ended)
	waits := s.create(other, s.containerConfig("waits", "true"))

	ids := func(filter *runtimeapi.ContainerFilter) (ids []string) {
		for _, c := range s.list(filter) {
			ids = append(ids, c.GetId())
		}
		return ids
	}
	mine := func(more map[string]string) map[string]string {
		selector := map[string]string{markLabel: s.mark}
		maps.Copy(selector, more)
		return selector
	}
	in := func(state runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: state}
	}
	require.ElementsMatch(s, []string{runs, ended, waits}, ids(&runtimeapi.ContainerFilter{LabelSelector: mine(nil)}))
	require.ElementsMatch(s, []string{runs, ended}, ids(&runtimeapi.ContainerFilter{PodSandboxId: p.id}))
	require.Equal(s, []string{waits}, ids(&runtimeapi.ContainerFilter{Id: waits}))
	require.Equal(s, []string{waits}, ids(&runtimeapi.ContainerFilter{LabelSelector: mine(nil), State: in(created)}))
	require.Equal(s, []string{runs}, ids(&runtimeapi.ContainerFilter{PodSandboxId: p.id, State: in(running)}))
	require.Equal(s, []string{ended}, ids(&runtimeapi.ContainerFilter{LabelSelector: mine(map[string]string{"name": "ended"})}))
	require.Empty(s, ids(&runtimeapi.ContainerFilter{Id: waits, PodSandboxId: p.id}))
	require.Empty(s, ids(&runtimeapi.ContainerFilter{LabelSelector: mine(map[string]string{"no": "such"})}))
	require.Subset(s, ids(nil), []string{runs, ended, waits})
}

func sandboxFilters(s *suite) {
	ready, stopped := s.runPod("ready"), s.runPod("stopped")
	_, err := s.StopPodSandbox(s.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: stopped.id})
	require.NoError(s, err)
	ids := func(filter *runtimeapi.PodSandboxFilter) (ids []string) {
		answer, err := s.ListPodSandbox(s.ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		require.NoError(s, err)
		for _, b := range answer.GetItems() {
			ids = append(ids, b.GetId())
		}
		return ids
	}
	mine := map[string]string{markLabel: s.mark}
	in := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: state}
	}
	require.ElementsMatch(s, []string{ready.id, stopped.id}, ids(&runtimeapi.PodSandboxFilter{LabelSelector: mine}))
	require.Equal(s, []string{ready.id}, ids(&runtimeapi.PodSandboxFilter{Id: ready.id}))
	require.Equal(s, []string{ready.id}, ids(&runtimeapi.PodSandboxFilter{LabelSelector: mine, State: in(runtimeapi.PodSandboxState_SANDBOX_READY)}))
	require.Equal(s, []string{stopped.id}, ids(&runtimeapi.PodSandboxFilter{LabelSelector: mine, State: in(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}))
	require.Empty(s, ids(&runtimeapi.PodSandboxFilter{Id: noSuchID}))
	require.Subset(s, ids(nil), []string{ready.id, stopped.id})
}

func addresses(s *suite) {
	first, second := s.runPod("first"), s.runPod("second")
	one, two := s.podStatus(first.id).GetNetwork().GetIp(), s.podStatus(second.id).GetNetwork().GetIp()
	require.NotEmpty(s, one)
	require.NotEmpty(s, two)
	require.NotEqual(s, one, two)
	require.Equal(s, one, s.podStatus(first.id).GetNetwork().GetIp(), "an address stays")
}

func hostNetwork(s *suite) {
	config := s.podConfig("host")
	config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	p := s.runPodWith(config)
	got := s.podStatus(p.id)
	require.Empty(s, got.GetNetwork().GetIp())
	require.Equal(s, runtimeapi.NamespaceMode_NODE, got.GetLinux().GetNamespaces().GetOptions().GetNetwork())
	require.Equal(s, int32(0), s.waitExited(s.run(p, "main", "true")).GetExitCode())
}
