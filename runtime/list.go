package runtime

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// Listing is what the runtime lists of all pods.
type Listing struct {
	// TakenAt is when the listing started.
	TakenAt time.Time
	// Pods holds what is listed of each of our pods: states and identities, and
	// such details as an inspection found before. Reading exit codes or addresses
	// from it is wrong; Inspect has them.
	Pods map[types.UID]pod.Observation
	// Foreign are the sandboxes that somebody else made.
	Foreign []string
}

// List lists all pods in two calls. It also forgets the details of what is gone.
func (c *Client) List(ctx context.Context) (Listing, error) {
	out := Listing{TakenAt: time.Now(), Pods: map[types.UID]pod.Observation{}}
	sandboxes, containers, err := c.lists(ctx, nil, convert.OwnedSelector())
	if err != nil {
		return Listing{}, failed(err, "", "list pods")
	}
	listed := make(map[string]bool, len(sandboxes)+len(containers))
	for _, s := range sandboxes {
		uid, ok := convert.Owned(s.GetLabels())
		if !ok {
			out.Foreign = append(out.Foreign, s.GetId())
			continue
		}
		listed[s.GetId()] = true
		c.cache.setOwner(s.GetId(), uid)
		sandbox := convert.Sandbox(s)
		if status, ok := c.cache.sandbox(s.GetId(), s.GetState()); ok {
			sandbox = convert.SandboxDetails(sandbox, status)
		}
		o := out.Pods[uid]
		o.Sandboxes = append(o.Sandboxes, sandbox)
		out.Pods[uid] = o
	}
	for _, l := range containers {
		uid, ok := convert.Owned(l.GetLabels())
		if !ok {
			continue
		}
		listed[l.GetId()] = true
		c.cache.setOwner(l.GetId(), uid)
		container := convert.Container(l)
		if status, ok := c.cache.container(l.GetId(), l.GetState()); ok {
			container = convert.ContainerDetails(container, status)
		}
		o := out.Pods[uid]
		o.Containers = append(o.Containers, container)
		out.Pods[uid] = o
	}
	for uid, o := range out.Pods {
		o.TakenAt = out.TakenAt
		o.Sort()
		out.Pods[uid] = o
	}
	c.cache.retain(listed, out.TakenAt)
	return out, nil
}
