package runtime

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// graceMin is the least that a container gets between the signals (C-15).
const graceMin = 2 * time.Second

// ContainerRequest asks for one instance of a container.
type ContainerRequest struct {
	Pod  *corev1.Pod
	Name string
	// Attempt is the compare-and-swap token: one that is taken fails with
	// pod.ClassExists.
	Attempt uint32
	Sandbox pod.Sandbox
	// ImageRef is Image.Ref of what PullImage returned.
	ImageRef string
	Mounts   []pod.Mount
	// SpecHash is pod.SpecHash of the pod as its author wrote it.
	SpecHash string
	// TargetID is the container whose processes an ephemeral container sees. When
	// it is empty, the running one that the spec names is looked up (SEC-3).
	TargetID string
}

// CreateContainer makes a container in a sandbox, without starting it, and
// returns its ID.
func (c *Client) CreateContainer(ctx context.Context, r ContainerRequest) (string, error) {
	key := pod.KeyOf(r.Pod)
	container, kind := pod.Find(&r.Pod.Spec, r.Name)
	if container == nil {
		return "", pod.Errorf(pod.ClassInvalid, convert.ReasonContainerConfig, "cannot create container %s of pod %s: the spec has no such container", r.Name, key)
	}
	sandbox, err := c.sandboxConfig(SandboxRequest{Pod: r.Pod, Attempt: r.Sandbox.Attempt, SpecHash: r.SpecHash})
	if err != nil {
		return "", err
	}
	config, err := c.containerConfig(ctx, r, container, kind)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(sandbox.GetLogDirectory(), config.GetLogPath())), logDirMode); err != nil {
		return "", failed(err, ReasonCreateContainer, "create the log directory of container %s of pod %s", r.Name, key)
	}
	var id string
	err = c.call(ctx, "CreateContainer", func(ctx context.Context, conn *connection) (err error) {
		id, err = conn.runtime.CreateContainer(ctx, r.Sandbox.ID, config, sandbox)
		return err
	})
	if err != nil {
		return "", pod.Errorf(creationClass(err), ReasonCreateContainer, "cannot create container %s of pod %s: %w", r.Name, key, said(err))
	}
	c.cache.setOwner(id, r.Pod.UID)
	return id, nil
}

func (c *Client) containerConfig(ctx context.Context, r ContainerRequest, container *corev1.Container, kind pod.Kind) (*runtimeapi.ContainerConfig, error) {
	user, err := c.imageUser(ctx, r.ImageRef)
	if err != nil {
		return nil, err
	}
	target, err := c.target(ctx, r)
	if err != nil {
		return nil, err
	}
	node, err := c.node()
	if err != nil {
		return nil, err
	}
	return convert.ContainerConfig(convert.ContainerInput{
		Pod: r.Pod, Container: container, Kind: kind, Attempt: r.Attempt, Sandbox: r.Sandbox, TargetID: target,
		ImageRef: r.ImageRef, ImageUser: user, Mounts: r.Mounts, SpecHash: r.SpecHash, Node: node,
	})
}

// target returns the ID of the container that an ephemeral container looks into.
func (c *Client) target(ctx context.Context, r ContainerRequest) (string, error) {
	name := targetName(&r.Pod.Spec, r.Name)
	if name == "" || r.TargetID != "" {
		return r.TargetID, nil
	}
	selector := convert.PodSelector(string(r.Pod.UID))
	selector[convert.LabelContainerName] = name
	var found []*runtimeapi.Container
	err := c.call(ctx, "ListContainers", func(ctx context.Context, conn *connection) (err error) {
		found, err = conn.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
			PodSandboxId: r.Sandbox.ID, LabelSelector: selector,
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		})
		return err
	})
	if err != nil {
		return "", failed(err, ReasonCreateContainer, "find container %s of pod %s", name, pod.KeyOf(r.Pod))
	}
	if len(found) == 0 {
		return "", pod.Errorf(pod.ClassNotFound, convert.ReasonContainerConfig,
			"cannot create container %s of pod %s: its target container %s does not run", r.Name, pod.KeyOf(r.Pod), name)
	}
	return found[0].GetId(), nil
}

func targetName(spec *corev1.PodSpec, name string) string {
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return spec.EphemeralContainers[i].TargetContainerName
		}
	}
	return ""
}

// StartContainer starts a created container and links its log.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	err := c.call(ctx, "StartContainer", func(ctx context.Context, conn *connection) error {
		return conn.runtime.StartContainer(ctx, id)
	})
	if err != nil {
		return pod.Errorf(startClass(err), ReasonRunContainer, "cannot start container %s: %w", id, said(err))
	}
	// The next inspection needs this status anyway and takes it from the cache.
	// The container has started, so from here on nothing is a failure to start it.
	status, err := c.containerStatus(ctx, id)
	if err == nil {
		began := time.Now()
		err = c.linkLog(status)
		c.o.Observe("LinkLog", time.Since(began), err)
	}
	return nil
}

// StopContainer asks a container to end, and kills it when grace is over. It
// returns when the container has ended. One that is gone counts as stopped. When
// ctx ends it returns at once, whatever the runtime then does.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	grace = max(grace, graceMin)
	seconds := int64((grace + time.Second - 1) / time.Second)
	err := c.call(ctx, "StopContainer", func(ctx context.Context, conn *connection) error {
		return conn.runtime.StopContainer(ctx, id, seconds)
	})
	if isNotFound(err) {
		return nil // TRM-10
	}
	return failed(err, ReasonKillContainer, "stop container %s", id)
}

// RemoveContainer removes a container and the link to its log; the log stays.
// One that is gone counts as removed.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	err := c.call(ctx, "RemoveContainer", func(ctx context.Context, conn *connection) error {
		return conn.runtime.RemoveContainer(ctx, id)
	})
	if err != nil && !isNotFound(err) {
		return failed(err, "", "remove container %s", id)
	}
	began := time.Now()
	err = c.unlinkLog(id)
	c.o.Observe("UnlinkLog", time.Since(began), err)
	return nil
}
