package pod

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is what the runtime says about a container. A sandbox uses
// StateRunning for ready and StateExited for not ready.
type State uint8

// The states of CRI.
const (
	StateUnknown State = iota
	StateCreated
	StateRunning
	StateExited
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case StateCreated:
		return "created"
	case StateRunning:
		return "running"
	case StateExited:
		return "exited"
	case StateUnknown:
		return "unknown"
	}
	return "unknown"
}

// Observation is all that the runtime said about one pod at one moment. It is
// not changed after it was made.
type Observation struct {
	// TakenAt is when the listing started. It carries a monotonic reading, so
	// two observations of one agent process can be ordered.
	TakenAt time.Time
	// Sandboxes are ordered newest first: by attempt, then by creation time.
	Sandboxes []Sandbox
	// Containers are ordered newest first: by attempt, then by creation time.
	Containers []Container
}

// Identity is what the labels and annotations of a sandbox or container say
// about its pod, enough to stop it when the pod's spec is gone (TRM-13).
type Identity struct {
	UID  types.UID
	Key  Key
	Spec string // hash of the replace-class fields; see SpecHash
	// GraceSeconds is the pod's own termination grace period.
	GraceSeconds int64
	// Source and Origin are where the pod came from.
	Source string
	Origin string
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	HostNetwork bool
	CreatedAt   time.Time
	// IPs are the valid addresses, primary first; empty for host network.
	IPs []string
	Identity
}

// Container is one container instance.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Kind      Kind
	Attempt   uint32
	State     State
	// Image is the reference the container was made from, as the spec had it.
	Image string
	// ImageID is the digest form that the runtime reports.
	ImageID    string
	Hash       string // see ContainerHash
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	Reason     string // Completed, Error, OOMKilled, StartError … as given by CRI
	Message    string
	LogPath    string
	// Resources are the runtime's effective limits, nil when it reports none.
	Resources *corev1.ResourceRequirements
	// User is the identity of the first process, nil when not reported.
	User *corev1.ContainerUser
}

// Sort puts sandboxes and containers into the documented order.
func (o *Observation) Sort() {
	slices.SortStableFunc(o.Sandboxes, func(a, b Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	slices.SortStableFunc(o.Containers, func(a, b Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
}

// Newest returns the newest sandbox (CPA-2).
func (o Observation) Newest() (Sandbox, bool) {
	if len(o.Sandboxes) == 0 {
		return Sandbox{}, false
	}
	return o.Sandboxes[0], true
}

// Latest returns the newest instance of the container called name.
func (o Observation) Latest(name string) (Container, bool) {
	return o.LatestIn("", name)
}

// LatestIn is Latest within one sandbox; an empty ID means any sandbox.
func (o Observation) LatestIn(sandboxID, name string) (Container, bool) {
	for _, c := range o.Containers {
		if c.Name == name && (sandboxID == "" || c.SandboxID == sandboxID) {
			return c, true
		}
	}
	return Container{}, false
}

// ByID returns the container with the given ID.
func (o Observation) ByID(id string) (Container, bool) {
	for _, c := range o.Containers {
		if c.ID == id {
			return c, true
		}
	}
	return Container{}, false
}

// Live reports whether anything of the pod may still be running: a ready
// sandbox, or a container that is neither exited nor merely created.
func (o Observation) Live() bool {
	for _, s := range o.Sandboxes {
		if s.Ready {
			return true
		}
	}
	for _, c := range o.Containers {
		if c.State == StateRunning || c.State == StateUnknown {
			return true
		}
	}
	return false
}

// Identity returns the identity that the newest sandbox carries.
func (o Observation) Identity() (Identity, bool) {
	if len(o.Sandboxes) > 0 {
		return o.Sandboxes[0].Identity, true
	}
	return Identity{}, false
}
