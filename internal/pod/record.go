package pod

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Record is what a worker remembers of its pod. Fields with a JSON name are
// durable: they must survive the agent. The others are cache: losing them costs
// time, never correctness.
//
// A record is a value: code that changes one clones it first.
type Record struct {
	Phase Phase `json:"phase"`
	// Started is when the agent first accepted the pod (SP-5); activeDeadlineSeconds
	// and status.startTime count from it.
	Started Stamp `json:"started"`
	// Sandbox is what is known of the pod's sandboxes.
	Sandbox SandboxRecord `json:"sandbox"`
	// Initialized says that the init containers are done, and for which sandbox.
	Initialized Initialization `json:"initialized"`
	// Containers is keyed by container name, whatever its kind.
	Containers map[string]ContainerRecord `json:"containers,omitempty"`
	// Stop is set once termination was requested, and never cleared.
	Stop *Stop `json:"stop,omitempty"`
	// RestartAll is set while all containers are being restarted in place (RR-6).
	RestartAll *RestartAll `json:"restartAll,omitempty"`
	// Outcome is the terminal phase once it is decided; it never changes then.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Status is the last published status. Conditions take their transition
	// times from it.
	Status *corev1.PodStatus `json:"status,omitempty"`
	// TornDown says that volumes and directories of the pod are released.
	TornDown bool `json:"tornDown,omitempty"`

	// VolumesReady says that the volumes are set up since the agent started.
	VolumesReady bool `json:"-"`
	// VolumesFailure is why setting up or tearing down volumes last failed.
	VolumesFailure *Failure `json:"-"`
}

// SandboxRecord is what is remembered of a pod's sandboxes.
type SandboxRecord struct {
	// Attempts is the number of sandboxes ever seen: the next attempt number.
	Attempts uint32 `json:"attempts"`
	// IPs are the last known addresses, kept after the sandbox died (INV-17).
	IPs []string `json:"ips,omitempty"`
	// Failure is why the last creation failed.
	Failure *Failure `json:"failure,omitempty"`
	// StopFailure is why stopping or removing a sandbox last failed.
	StopFailure *Failure `json:"-"`
	// Stopped are the sandboxes that were stopped since the agent started. One
	// that is not ready is stopped once more, since only that frees its network.
	Stopped []string `json:"-"`
	// Announced is the sandbox whose replacement was reported by an event.
	Announced string `json:"-"`
}

// Initialization binds "the init containers are done" to one sandbox in one
// boot, so that it is not believed of another.
type Initialization struct {
	SandboxID string `json:"sandboxID,omitempty"`
	BootID    string `json:"bootID,omitempty"`
}

// Exit code and reason that stand for an end that nobody saw (INV-12).
const (
	ExitLost   = 137
	ReasonLost = "ContainerStatusUnknown"
)

// Exit is how a container instance ended.
type Exit struct {
	ContainerID string    `json:"containerID"`
	SandboxID   string    `json:"sandboxID,omitempty"`
	Attempt     uint32    `json:"attempt"`
	ExitCode    int32     `json:"exitCode"`
	Reason      string    `json:"reason,omitempty"`
	Message     string    `json:"message,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	// At is FinishedAt on the clocks that survive a step and a restart.
	At Stamp `json:"at"`
	// Image and ImageID are what the instance ran.
	Image   string `json:"image,omitempty"`
	ImageID string `json:"imageID,omitempty"`
}

// ContainerRecord is what is remembered of one container of a pod.
type ContainerRecord struct {
	// Attempts is the number of instances ever seen: the next attempt number,
	// the next restartCount and the next log file index (INV-11).
	Attempts uint32 `json:"attempts"`
	// Retry says that the newest number belonged to an instance that never ran,
	// because its start was interrupted: the next instance takes it over.
	Retry bool `json:"retry,omitempty"`
	// Running is the instance last seen running, empty when there is none. When
	// it vanishes from the runtime its end is unknown (INV-12).
	Running string `json:"running,omitempty"`
	// RunningIn is the sandbox of that instance.
	RunningIn string `json:"runningIn,omitempty"`
	// Exit is the newest known end of an instance. Run-once work that has one is
	// not run again, whatever the runtime still lists.
	Exit *Exit `json:"exit,omitempty"`
	// Previous is the end before Exit: lastState while the newest is not running.
	Previous *Exit `json:"previous,omitempty"`
	// Replacing is the instance that is being stopped so that another takes its
	// place, by an image swap or after a failed probe: however it ends, a new one
	// starts.
	Replacing string `json:"replacing,omitempty"`
	// Probed is what the probes concluded about the instance that it names. It is
	// void for any other (INV-10).
	Probed Verdicts `json:"probed,omitzero"`
	// Backoff delays restarts.
	Backoff Backoff `json:"backoff"`
	// Failure is why pulling, creating or starting last failed.
	Failure *Failure `json:"failure,omitempty"`
	// StopFailure counts failed attempts to stop the running instance.
	StopFailure *Failure `json:"-"`
	// StartFailed is the instance whose start the runtime refused. One that shows
	// a start error without that was interrupted, by the end of an agent.
	StartFailed string `json:"-"`
	// Pulled is the image that is ready for the next instance.
	Pulled Pulled `json:"-"`
}

// Next returns the number of the next instance.
func (c *ContainerRecord) Next() uint32 {
	if c.Retry && c.Attempts > 0 {
		return c.Attempts - 1
	}
	return c.Attempts
}

// Pulled is an image that was looked up or pulled for one attempt.
type Pulled struct {
	Image   string // as the spec has it
	Ref     string // what the runtime resolved it to
	Attempt uint32
}

// Backoff is the restart delay of a container (BO rows).
type Backoff struct {
	// Key is what the delay is bound to: another image or other resources reset it (BO-1).
	Key string `json:"key,omitempty"`
	// Delay is the wait after the next exit.
	Delay time.Duration `json:"delay,omitempty"`
	// Updated is when Delay last grew; the entry expires after the reset window (BO-4).
	Updated Stamp `json:"updated"`
	// Charged is the exit for which Delay already grew: its restart is due.
	Charged string `json:"charged,omitempty"`
	// Announced is the exit for which the BackOff event was emitted.
	Announced string `json:"announced,omitempty"`
}

// Failure is a failed operation as data: shown in the status, and the reason
// for a wait.
type Failure struct {
	Class   Class  `json:"class"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Key is what failed, such as an image; another key is another failure.
	Key   string `json:"key,omitempty"`
	Count int    `json:"count"`
	Since Stamp  `json:"since"`
	// Until is when to try again.
	Until Stamp `json:"until"`
}

// Stop is a request to end the pod.
type Stop struct {
	RequestedAt  Stamp `json:"requestedAt"`
	GraceSeconds int64 `json:"graceSeconds"`
	// Deadline is when the grace is used up. It survives restarts and only moves
	// to an earlier moment (INV-5).
	Deadline Stamp `json:"deadline"`
	// Delete says that the pod left the desired set: nothing of it is to remain.
	Delete bool `json:"delete,omitempty"`
	// Reason and Message go into the status when the pod did not end by itself.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// RestartAll is a restart of all containers of a pod in its sandbox.
type RestartAll struct {
	// Trigger is the container whose exit asked for it, and the instance.
	Trigger   string `json:"trigger"`
	TriggerID string `json:"triggerID"`
	// Started is when the restart began.
	Started Stamp `json:"started"`
}

// Outcome is the terminal phase of a pod with reason and message.
type Outcome struct {
	Phase   corev1.PodPhase `json:"phase"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Clone returns a copy that shares no mutable memory with r. What the pointers
// lead to is never changed in place, so it is shared.
func (r Record) Clone() Record {
	r.Containers = maps.Clone(r.Containers)
	return r
}

// Container returns what is remembered of the container called name.
func (r *Record) Container(name string) ContainerRecord { return r.Containers[name] }

// SetContainer stores what is remembered of the container called name. The
// record must be a clone.
func (r *Record) SetContainer(name string, c ContainerRecord) {
	if r.Containers == nil {
		r.Containers = map[string]ContainerRecord{}
	}
	r.Containers[name] = c
}

// StopRequest asks a worker to end its pod.
type StopRequest struct {
	// GraceSeconds overrides the pod's own grace; nil keeps it.
	GraceSeconds *int64
	Delete       bool
	Reason       string
	Message      string
}

// Merge returns the request that is at least as strict as both: the smaller
// grace (PW-6), and deletion if either asks for it.
func (s StopRequest) Merge(other StopRequest) StopRequest {
	out := s
	if g := other.GraceSeconds; g != nil && (out.GraceSeconds == nil || *g < *out.GraceSeconds) {
		out.GraceSeconds = g
	}
	out.Delete = s.Delete || other.Delete
	if out.Reason == "" {
		out.Reason, out.Message = other.Reason, other.Message
	}
	return out
}
