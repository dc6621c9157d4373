package runtime

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// maxStatusCalls limits the status calls of one inspection at one time.
const maxStatusCalls = 8

// Inspect returns everything that the runtime says about one pod.
func (c *Client) Inspect(ctx context.Context, uid types.UID) (pod.Observation, error) {
	o := pod.Observation{TakenAt: time.Now()}
	sandboxes, containers, err := c.lists(ctx, convert.PodSelector(string(uid)), convert.PodSelector(string(uid)))
	if err != nil {
		return pod.Observation{}, failed(err, "", "inspect pod %s", uid)
	}
	foundSandboxes := make([]*pod.Sandbox, len(sandboxes))
	foundContainers := make([]*pod.Container, len(containers))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(maxStatusCalls)
	for i, s := range sandboxes {
		group.Go(func() (err error) {
			foundSandboxes[i], err = c.detailedSandbox(gctx, s)
			return err
		})
	}
	for i, l := range containers {
		group.Go(func() (err error) {
			foundContainers[i], err = c.detailedContainer(gctx, l)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return pod.Observation{}, failed(err, "", "inspect pod %s", uid)
	}
	o.Sandboxes = present(foundSandboxes)
	o.Containers = present(foundContainers)
	o.Sort()
	return o, nil
}

// lists asks for sandboxes and containers side by side.
func (c *Client) lists(ctx context.Context, sandboxes, containers map[string]string) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	var s []*runtimeapi.PodSandbox
	var l []*runtimeapi.Container
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.call(gctx, "ListPodSandbox", func(ctx context.Context, conn *connection) (err error) {
			s, err = conn.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: sandboxes})
			return err
		})
	})
	group.Go(func() error {
		return c.call(gctx, "ListContainers", func(ctx context.Context, conn *connection) (err error) {
			l, err = conn.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: containers})
			return err
		})
	})
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	return s, l, nil
}

// detailedSandbox returns a listed sandbox with its details, or nil when it is
// gone by now.
func (c *Client) detailedSandbox(ctx context.Context, listed *runtimeapi.PodSandbox) (*pod.Sandbox, error) {
	out := convert.Sandbox(listed)
	c.cache.setOwner(out.ID, out.UID)
	status, ok := c.cache.sandbox(listed.GetId(), listed.GetState())
	if !ok {
		var err error
		if status, err = c.sandboxStatus(ctx, listed.GetId()); err != nil {
			if isNotFound(err) {
				return nil, nil //nolint:nilnil // gone is neither a sandbox nor an error
			}
			return nil, err
		}
	}
	out = convert.SandboxDetails(out, status)
	return &out, nil
}

// detailedContainer returns a listed container with its details, or nil when it
// is gone by now. A created one has none yet.
func (c *Client) detailedContainer(ctx context.Context, listed *runtimeapi.Container) (*pod.Container, error) {
	out := convert.Container(listed)
	if uid, ok := convert.Owned(listed.GetLabels()); ok {
		c.cache.setOwner(out.ID, uid)
	}
	if out.State == pod.StateCreated {
		return &out, nil
	}
	status, ok := c.cache.container(listed.GetId(), listed.GetState())
	if !ok {
		var err error
		if status, err = c.containerStatus(ctx, listed.GetId()); err != nil {
			if isNotFound(err) {
				return nil, nil //nolint:nilnil // gone is neither a container nor an error
			}
			return nil, err
		}
	}
	out = convert.ContainerDetails(out, status)
	return &out, nil
}

func (c *Client) sandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	var response *runtimeapi.PodSandboxStatusResponse
	err := c.call(ctx, "PodSandboxStatus", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.runtime.PodSandboxStatus(ctx, id, false)
		return err
	})
	if err != nil {
		return nil, failed(err, "", "get the status of sandbox %s", id)
	}
	if response.GetStatus() == nil {
		return nil, pod.Errorf(pod.ClassUnknown, "", "cannot get the status of sandbox %s: the answer is empty", id)
	}
	c.cache.keepSandbox(response.GetStatus())
	return response.GetStatus(), nil
}

func (c *Client) containerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	var response *runtimeapi.ContainerStatusResponse
	err := c.call(ctx, "ContainerStatus", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.runtime.ContainerStatus(ctx, id, false)
		return err
	})
	if err != nil {
		return nil, failed(err, "", "get the status of container %s", id)
	}
	if response.GetStatus() == nil {
		return nil, pod.Errorf(pod.ClassUnknown, "", "cannot get the status of container %s: the answer is empty", id)
	}
	c.cache.keepContainer(response.GetStatus())
	return response.GetStatus(), nil
}

func present[T any](found []*T) []T {
	var out []T
	for _, f := range slices.DeleteFunc(found, func(f *T) bool { return f == nil }) {
		out = append(out, *f)
	}
	return out
}
