package runtime

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// detailCache keeps the parts of statuses that cannot change any more, so that
// an unchanged pod costs two list calls and no status call. Its mutex guards the
// maps for a few lines.
type detailCache struct {
	mu sync.Mutex
	// A status holds while the object is listed in the state that it shows.
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	owners     map[string]owner
}

// owner is the pod of a container or sandbox, for events that carry an ID only.
type owner struct {
	uid   types.UID
	since time.Time
}

func newDetailCache() *detailCache {
	return &detailCache{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*runtimeapi.ContainerStatus{},
		owners:     map[string]owner{},
	}
}

func (d *detailCache) sandbox(id string, state runtimeapi.PodSandboxState) (*runtimeapi.PodSandboxStatus, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.sandboxes[id]
	return entry, ok && entry.GetState() == state
}

// keepSandbox remembers a status that will not change: a ready sandbox has its
// addresses by the time that it is ready, unless a status says otherwise.
func (d *detailCache) keepSandbox(status *runtimeapi.PodSandboxStatus) {
	ready := status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	host := status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if ready && !host && status.GetNetwork().GetIp() == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes[status.GetId()] = status
}

func (d *detailCache) container(id string, state runtimeapi.ContainerState) (*runtimeapi.ContainerStatus, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entry, ok := d.containers[id]
	return entry, ok && entry.GetState() == state
}

// running reports whether a container is known to have been running.
func (d *detailCache) running(id string) bool {
	_, ok := d.container(id, runtimeapi.ContainerState_CONTAINER_RUNNING)
	return ok
}

// keepContainer remembers the status of a container that runs or has ended.
func (d *detailCache) keepContainer(status *runtimeapi.ContainerStatus) {
	switch status.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED:
	case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.containers[status.GetId()] = status
}

func (d *detailCache) setOwner(id string, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.owners[id]; !ok {
		d.owners[id] = owner{uid: uid, since: time.Now()}
	}
}

func (d *detailCache) owner(id string) types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[id].uid
}

// retain forgets everything that a full listing, begun at start, did not show.
// What became known since then was perhaps made since then.
func (d *detailCache) retain(listed map[string]bool, start time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gone := func(id string) bool {
		o, ok := d.owners[id]
		return !listed[id] && (!ok || o.since.Before(start))
	}
	for id := range d.sandboxes {
		if gone(id) {
			delete(d.sandboxes, id)
		}
	}
	for id := range d.containers {
		if gone(id) {
			delete(d.containers, id)
		}
	}
	for id := range d.owners {
		if gone(id) {
			delete(d.owners, id)
		}
	}
}
