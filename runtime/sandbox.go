package runtime

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// logDirMode lets log collectors that are not root read logs.
const logDirMode = 0o755

// SandboxRequest asks for a pod's sandbox.
type SandboxRequest struct {
	Pod *corev1.Pod
	// Attempt is the compare-and-swap token: one that is taken fails with
	// pod.ClassExists.
	Attempt uint32
	// SpecHash is pod.SpecHash of the pod as its author wrote it.
	SpecHash string
}

// CreateSandbox makes and starts a sandbox and returns its ID. Only so many are
// in the making at one time; more callers wait.
func (c *Client) CreateSandbox(ctx context.Context, r SandboxRequest) (string, error) {
	key := pod.KeyOf(r.Pod)
	config, err := c.sandboxConfig(r)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(config.GetLogDirectory(), logDirMode); err != nil { // SB-4
		return "", failed(err, ReasonCreateSandbox, "create the log directory of pod %s", key)
	}
	if err := c.sandboxStarts.Acquire(ctx, 1); err != nil {
		return "", failed(err, ReasonCreateSandbox, "create the sandbox of pod %s", key)
	}
	defer c.sandboxStarts.Release(1)
	var id string
	err = c.call(ctx, "RunPodSandbox", func(ctx context.Context, conn *connection) (err error) {
		id, err = conn.runtime.RunPodSandbox(ctx, config, "")
		return err
	})
	if err != nil {
		return "", c.sandboxFailure(ctx, key, err)
	}
	c.cache.setOwner(id, r.Pod.UID)
	return id, nil
}

// SandboxWarnings returns what is worth an event about a pod's sandbox, such as
// DNS servers beyond the limit (DNS-2, DNS-7).
func (c *Client) SandboxWarnings(p *corev1.Pod) []convert.Warning {
	node, err := c.node()
	if err != nil {
		return nil // CreateSandbox reports it
	}
	return convert.SandboxWarnings(p, node)
}

// StopSandbox stops a sandbox and whatever still runs in it. One that is gone
// counts as stopped.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	err := c.call(ctx, "StopPodSandbox", func(ctx context.Context, conn *connection) error {
		return conn.runtime.StopPodSandbox(ctx, id)
	})
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		// A network that is not ready cannot be taken down either.
		if why := c.withoutNetwork(ctx, classOf(err), "stop sandbox "+id); why != nil {
			return why
		}
	}
	return failed(err, ReasonKillSandbox, "stop sandbox %s", id)
}

// RemoveSandbox removes a sandbox and its containers. One that is gone counts
// as removed.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	err := c.call(ctx, "RemovePodSandbox", func(ctx context.Context, conn *connection) error {
		return conn.runtime.RemovePodSandbox(ctx, id)
	})
	if isNotFound(err) {
		return nil
	}
	return failed(err, "", "remove sandbox %s", id)
}

func (c *Client) sandboxConfig(r SandboxRequest) (*runtimeapi.PodSandboxConfig, error) {
	node, err := c.node()
	if err != nil {
		return nil, err
	}
	return convert.SandboxConfig(convert.SandboxInput{Pod: r.Pod, Attempt: r.Attempt, SpecHash: r.SpecHash, Node: node})
}

// sandboxFailure classifies a failure to run a sandbox. CRI has no code for "the
// network is not ready", but a condition in the runtime's status (Q-28).
func (c *Client) sandboxFailure(ctx context.Context, key pod.Key, err error) error {
	class := creationClass(err)
	if why := c.withoutNetwork(ctx, class, "create the sandbox of pod "+key.String()); why != nil {
		return why
	}
	return pod.Errorf(class, ReasonCreateSandbox, "cannot create the sandbox of pod %s: %w", key, said(err))
}

// withoutNetwork is the failure to do something with a sandbox while the network
// of the runtime is not ready, and nil when that is not the cause.
func (c *Client) withoutNetwork(ctx context.Context, class pod.Class, what string) error {
	if class != pod.ClassUnknown && class != pod.ClassUnavailable {
		return nil
	}
	status, err := c.conditions(ctx)
	if err != nil || status.NetworkReady {
		return nil //nolint:nilerr // a runtime that does not answer is told of by the first failure
	}
	return pod.Errorf(pod.ClassNetwork, ReasonNetwork, "cannot %s: the network of the container runtime is not ready: %s", what, status.NetworkMessage)
}
