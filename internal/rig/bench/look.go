package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels by which the pods of the agents are told from the bare ones.
const (
	labelNamespace = "io.kubernetes.pod.namespace"
	labelName      = "io.kubernetes.pod.name"
)

// inspections is how many calls inspectAll has under way.
const inspections = 8

func ofAgent(labels map[string]string) bool { return !strings.HasPrefix(labels[labelName], "raw-") }

// running returns the names of the agent's pods that have a running container.
func (r *raw) running(ctx context.Context) (map[string]bool, error) {
	list, err := r.rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelNamespace: "bench"},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	names := map[string]bool{}
	for _, c := range list.GetContainers() {
		if ofAgent(c.GetLabels()) {
			names[c.GetLabels()[labelName]] = true
		}
	}
	return names, nil
}

// left counts the sandboxes of the agent's pods, or only those that are ready.
func (r *raw) left(ctx context.Context, ready bool) (int, error) {
	list, err := r.rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{labelNamespace: "bench"},
	}})
	if err != nil {
		return 0, fmt.Errorf("cannot list sandboxes: %w", err)
	}
	n := 0
	for _, s := range list.GetItems() {
		if ofAgent(s.GetLabels()) && (!ready || s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY) {
			n++
		}
	}
	return n, nil
}

// instances returns the containers of a pod as the runtime has them. A kubelet
// adds its node to the name.
func (r *raw) instances(ctx context.Context, name string) ([]*runtimeapi.ContainerStatus, error) {
	list, err := r.rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelNamespace: "bench"},
	}})
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	var out []*runtimeapi.ContainerStatus
	for _, c := range list.GetContainers() {
		if has := c.GetLabels()[labelName]; has != name && has != name+"-bench" {
			continue
		}
		s, err := r.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err != nil {
			return nil, fmt.Errorf("cannot get the status of a container: %w", err)
		}
		out = append(out, s.GetStatus())
	}
	return out, nil
}

// inspectAll does what any agent must do to know what runs: two lists, and an
// inspection of every sandbox and container.
func (r *raw) inspectAll(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	sandboxes, err := r.rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return 0, fmt.Errorf("cannot list sandboxes: %w", err)
	}
	containers, err := r.rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return 0, fmt.Errorf("cannot list containers: %w", err)
	}
	var all errgroup.Group
	all.SetLimit(inspections)
	for _, s := range sandboxes.GetItems() {
		all.Go(func() error {
			_, err := r.rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
			return err
		})
	}
	for _, c := range containers.GetContainers() {
		all.Go(func() error {
			_, err := r.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			return err
		})
	}
	err = all.Wait()
	return time.Since(began), err
}
