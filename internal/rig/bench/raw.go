package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/apis"
	"nodelet.dev/nodelet/internal/node"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/rig"
	"nodelet.dev/nodelet/runtime/convert"
)

// raw makes pods by the bare CRI calls, with the very messages that nodelet
// sends: what no agent can do without.
type raw struct {
	rt     runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	dir    string // for the files that containers mount
	node   convert.Node
	serial int
}

func newRaw(conn *grpc.ClientConn, dir string) (*raw, error) {
	facts, err := node.Read("")
	if err != nil {
		return nil, err
	}
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	r := &raw{rt: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn), dir: dir}
	r.node = convert.Node{
		Name: facts.Name, HostIPs: facts.HostIPs, PodLogsDir: dir, ResolvConf: string(resolv), ClusterDomain: "cluster.local",
		Allocatable: facts.Allocatable, MemoryCapacityBytes: facts.MemoryBytes, MinOOMScoreAdj: facts.MinOOMScoreAdj,
	}
	return r, os.MkdirAll(dir, 0o755)
}

// rawPod is a pod that was made so.
type rawPod struct {
	name      string
	sandbox   string
	container string
	// What another instance is made from.
	config *runtimeapi.PodSandboxConfig
	main   *runtimeapi.ContainerConfig
}

func (r *raw) name() string {
	r.serial++
	return fmt.Sprintf("raw-%d", r.serial)
}

// pod makes one pod with one container and starts it.
func (r *raw) pod(ctx context.Context, name string) (rawPod, error) {
	p := rawPod{name: name}
	spec, err := r.spec(name)
	if err != nil {
		return p, err
	}
	config, err := convert.SandboxConfig(convert.SandboxInput{Pod: spec, Node: r.node})
	if err != nil {
		return p, err
	}
	delete(config.Labels, convert.LabelOwned) // the agent beside us must leave it alone
	if err := os.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		return p, err
	}
	sandbox, err := r.rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return p, fmt.Errorf("cannot run a sandbox: %w", err)
	}
	p.sandbox = sandbox.GetPodSandboxId()
	status, err := r.rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	if err != nil {
		return p, fmt.Errorf("cannot get the status of a sandbox: %w", err)
	}
	image, err := r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: rig.BusyboxImage}})
	if err != nil {
		return p, fmt.Errorf("cannot get the status of an image: %w", err)
	}
	files, err := r.files(name)
	if err != nil {
		return p, err
	}
	main, err := convert.ContainerConfig(convert.ContainerInput{
		Pod: spec, Container: &spec.Spec.Containers[0], Kind: pod.KindNormal, ImageRef: image.GetImage().GetId(), Node: r.node,
		Sandbox: pod.Sandbox{ID: p.sandbox, IPs: []string{status.GetStatus().GetNetwork().GetIp()}}, Mounts: files,
	})
	if err != nil {
		return p, err
	}
	delete(main.Labels, convert.LabelOwned)
	p.config, p.main = config, main
	return p, r.start(ctx, &p)
}

// start makes an instance of the container and starts it.
func (r *raw) start(ctx context.Context, p *rawPod) error {
	container, err := r.rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.sandbox, SandboxConfig: p.config, Config: p.main})
	if err != nil {
		return fmt.Errorf("cannot create a container: %w", err)
	}
	p.container = container.GetContainerId()
	if _, err := r.rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container}); err != nil {
		return fmt.Errorf("cannot start a container: %w", err)
	}
	return nil
}

// restart kills the container and starts another one as soon as the runtime
// shows that it ended. It returns the time from the end to the start.
func (r *raw) restart(ctx context.Context, p *rawPod) (time.Duration, error) {
	pid, err := r.pid(ctx, p.container)
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	var ended time.Time
	for ended.IsZero() {
		s, err := r.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.container})
		if err != nil {
			return 0, err
		}
		if s.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			ended = time.Unix(0, s.GetStatus().GetFinishedAt())
			continue
		}
		time.Sleep(time.Millisecond)
	}
	p.main.Metadata.Attempt++
	if err := r.start(ctx, p); err != nil {
		return 0, err
	}
	at, err := r.started(ctx, p.container)
	return at.Sub(ended), err
}

// spec is the pod as nodelet has it.
func (r *raw) spec(name string) (*corev1.Pod, error) {
	var p corev1.Pod
	if err := yaml.Unmarshal([]byte(manifest(name)), &p); err != nil {
		return nil, err
	}
	out := apis.Default(&p)
	out.UID = types.UID(name)
	return out, nil
}

// files are what every container mounts.
func (r *raw) files(name string) ([]pod.Mount, error) {
	var mounts []pod.Mount
	for _, at := range []string{"/etc/hosts", "/dev/termination-log"} {
		path := filepath.Join(r.dir, name+filepath.Base(at))
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return nil, err
		}
		mounts = append(mounts, pod.Mount{HostPath: path, ContainerPath: at})
	}
	return mounts, nil
}

// started returns when a container started, by the runtime's clock.
func (r *raw) started(ctx context.Context, id string) (time.Time, error) {
	s, err := r.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot get the status of a container: %w", err)
	}
	return time.Unix(0, s.GetStatus().GetStartedAt()), nil
}

// remove ends a pod as an agent does: the container first.
func (r *raw) remove(ctx context.Context, p rawPod) error {
	if _, err := r.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.container, Timeout: 2}); err != nil {
		return fmt.Errorf("cannot stop a container: %w", err)
	}
	if _, err := r.rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("cannot stop a sandbox: %w", err)
	}
	_, err := r.rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
	return err
}

// once makes one pod and removes it, and returns how long each took.
func (r *raw) once(ctx context.Context) (made, removed time.Duration, err error) {
	began := time.Now()
	p, err := r.pod(ctx, r.name())
	if err != nil {
		return 0, 0, err
	}
	at, err := r.started(ctx, p.container)
	if err != nil {
		return 0, 0, err
	}
	removing := time.Now()
	err = r.remove(ctx, p)
	return at.Sub(began), time.Since(removing), err
}

// burst makes n pods with so many in the making at once, and returns the time to
// the last start.
func (r *raw) burst(ctx context.Context, n, concurrency int) (last time.Duration, err error) {
	names := make(chan string, n)
	for range n {
		names <- r.name()
	}
	close(names)
	began := time.Now()
	var mu sync.Mutex // guards pods and err
	var pods []rawPod
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for name := range names {
				p, failed := r.pod(ctx, name)
				mu.Lock()
				if failed != nil {
					err = failed
				}
				pods = append(pods, p)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if err != nil {
		return 0, err
	}
	for _, p := range pods {
		at, err := r.started(ctx, p.container)
		if err != nil {
			return 0, err
		}
		last = max(last, at.Sub(began))
	}
	for _, p := range pods {
		if err := r.remove(ctx, p); err != nil {
			return 0, err
		}
	}
	return last, nil
}

// pid returns the first process of a container.
func (r *raw) pid(ctx context.Context, id string) (int, error) {
	s, err := r.rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct {
		Pid int `json:"pid"`
	}
	return info.Pid, json.Unmarshal([]byte(s.GetInfo()["info"]), &info)
}
