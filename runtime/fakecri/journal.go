package fakecri

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventCall is the name under which the sending of an event meets faults.
const eventCall = "Event"

// Call is one call as the server saw it.
type Call struct {
	RPC string
	// UID, Pod and Container name what the call was about; Image is set for calls about images and for CreateContainer.
	UID, Pod, Container, Image string
	// ID is of the sandbox or container, also of one that the call made.
	ID      string
	Attempt uint32
	Began   time.Time
	// Ended is zero while the call runs.
	Ended time.Time
	Err   error
	// Request is the message; read it only.
	Request any
}

// ContainerKey names a container of a pod over all its attempts.
type ContainerKey struct{ UID, Name string }

// AttemptKey names one attempt.
type AttemptKey struct {
	UID, Name string
	Attempt   uint32
}

// journal is guarded by Server.mu.
type journal struct {
	calls      []Call
	first      int // the number of the oldest call kept
	starts     map[AttemptKey]int
	running    map[ContainerKey]int
	maxRunning map[ContainerKey]int
}

// journalSize is the default of Options.JournalSize.
const journalSize = 100_000

func newJournal() journal {
	return journal{starts: map[AttemptKey]int{}, running: map[ContainerKey]int{}, maxRunning: map[ContainerKey]int{}}
}

func (s *Server) begin(rpc string, req any) (int, *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.describeLocked(rpc, req)
	j := &s.journal
	if size := cmp.Or(s.options.JournalSize, journalSize); len(j.calls) >= size {
		dropped := len(j.calls) - size/2
		j.calls = slices.Clone(j.calls[dropped:])
		j.first += dropped
	}
	j.calls = append(j.calls, call)
	return j.first + len(j.calls) - 1, s.strikeLocked(call)
}

func (s *Server) finish(index int, answer any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if index < s.journal.first {
		return
	}
	call := &s.journal.calls[index-s.journal.first]
	call.Ended, call.Err = time.Now(), err
	switch made := answer.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		call.ID = made.GetPodSandboxId()
	case *runtimeapi.CreateContainerResponse:
		call.ID = made.GetContainerId()
	}
}

func (s *Server) describeLocked(rpc string, req any) Call {
	call := Call{RPC: rpc, Began: time.Now(), Request: req}
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		call.ofPod(r.GetConfig().GetMetadata())
	case *runtimeapi.CreateContainerRequest:
		call.ofPod(r.GetSandboxConfig().GetMetadata())
		call.Container, call.Attempt = r.GetConfig().GetMetadata().GetName(), r.GetConfig().GetMetadata().GetAttempt()
		call.Image = r.GetConfig().GetImage().GetImage()
	case interface{ GetContainerId() string }:
		call.ID = r.GetContainerId()
		if c, err := s.findContainerLocked(call.ID); err == nil {
			s.ofContainerLocked(&call, c)
		}
	case interface{ GetPodSandboxId() string }:
		call.ID = r.GetPodSandboxId()
		if b, err := s.findSandboxLocked(call.ID); err == nil {
			call.ofPod(b.config.GetMetadata())
		}
	case interface {
		GetImage() *runtimeapi.ImageSpec
	}:
		call.Image = r.GetImage().GetImage()
	}
	return call
}

func (c *Call) ofPod(m *runtimeapi.PodSandboxMetadata) {
	c.UID, c.Pod, c.Attempt = m.GetUid(), m.GetName(), m.GetAttempt()
}

func (s *Server) ofContainerLocked(call *Call, c *container) {
	if b, found := s.sandboxes[c.sandboxID]; found {
		call.ofPod(b.config.GetMetadata())
	}
	call.Container, call.Attempt = c.config.GetMetadata().GetName(), c.config.GetMetadata().GetAttempt()
}

func (s *Server) keyLocked(c *container) AttemptKey {
	m := c.config.GetMetadata()
	key := AttemptKey{Name: m.GetName(), Attempt: m.GetAttempt()}
	if b, found := s.sandboxes[c.sandboxID]; found {
		key.UID = b.config.GetMetadata().GetUid()
	}
	return key
}

func (s *Server) countStartLocked(key AttemptKey) {
	j := &s.journal
	whole := ContainerKey{UID: key.UID, Name: key.Name}
	j.starts[key]++
	j.running[whole]++
	j.maxRunning[whole] = max(j.maxRunning[whole], j.running[whole])
}

// Calls returns the log of calls, oldest first.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.journal.calls)
}

// Starts counts how often an attempt of a container was started: more than once is a bug of the agent.
func (s *Server) Starts(key AttemptKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.starts[key]
}

// TotalStarts counts the starts of a container over all attempts.
func (s *Server) TotalStarts(key ContainerKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for attempt, count := range s.journal.starts {
		if attempt.UID == key.UID && attempt.Name == key.Name {
			total += count
		}
	}
	return total
}

// MaxRunning is the largest number of attempts of a container that ever ran at the same time.
func (s *Server) MaxRunning(key ContainerKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.maxRunning[key]
}
