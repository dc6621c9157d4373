package plan_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// change reads lines about sandboxes and containers of the runtime:
//
//	s1 [notready|ready] [ip=none] [hostnetwork] [age=5m]
//	web-2 running|created|exited|unknown [in=s1] [code=1] [reason=Error] [ended=5s] [image=web:1] [hash=…]
//	web-2 gone
//
// The number in an ID is the attempt. A container is in the newest sandbox and
// made from the desired pod's image unless the line says otherwise.
func (w *world) change(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if attempt, err := strconv.Atoi(strings.TrimPrefix(f[0], "s")); err == nil {
			w.changeSandbox(t, f[0], uint32(attempt), f[1:]) //nolint:gosec // a small number
			continue
		}
		w.changeContainer(t, f[0], f[1:])
	}
}

func (w *world) changeSandbox(t *testing.T, id string, attempt uint32, words []string) {
	t.Helper()
	i := slices.IndexFunc(w.runtime.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
	if i < 0 {
		i = len(w.runtime.Sandboxes)
		w.runtime.Sandboxes = append(w.runtime.Sandboxes, w.sandbox(attempt))
	}
	s := &w.runtime.Sandboxes[i]
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "gone":
			w.runtime.Sandboxes = slices.Delete(w.runtime.Sandboxes, i, i+1)
			return
		case "ready", "notready":
			s.Ready = word == "ready"
		case "ip":
			s.IPs = nil
			if value != "none" {
				s.IPs = []string{value}
			}
		case "hostnetwork":
			s.HostNetwork, s.IPs = true, nil
		case "age":
			s.CreatedAt = w.now.Wall.Add(-duration(t, value))
		default:
			t.Fatalf("sandbox %s: unknown word %q", id, word)
		}
	}
}

func (w *world) sandbox(attempt uint32) pod.Sandbox {
	s := pod.Sandbox{
		ID: fmt.Sprintf("s%d", attempt), Attempt: attempt, Ready: true, CreatedAt: w.now.Wall,
		HostNetwork: w.pod.Spec.HostNetwork,
	}
	if !s.HostNetwork {
		s.IPs = []string{fmt.Sprintf("10.1.0.%d", attempt+1)}
	}
	return s
}

func (w *world) changeContainer(t *testing.T, id string, words []string) {
	t.Helper()
	i := slices.IndexFunc(w.runtime.Containers, func(c pod.Container) bool { return c.ID == id })
	if i < 0 {
		cut := strings.LastIndex(id, "-")
		attempt, err := strconv.Atoi(strings.TrimRight(id[cut+1:], "abc"))
		require.NoError(t, err, "container %s", id)
		newest, _ := w.snapshot().Newest()
		i = len(w.runtime.Containers)
		w.runtime.Containers = append(w.runtime.Containers, w.container(id[:cut], id, newest.ID, uint32(attempt))) //nolint:gosec // a small number
	}
	c := &w.runtime.Containers[i]
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "gone":
			w.runtime.Containers = slices.Delete(w.runtime.Containers, i, i+1)
			return
		case "running":
			c.State, c.StartedAt = pod.StateRunning, w.now.Wall
		case "created":
			c.State = pod.StateCreated
		case "unknown":
			c.State = pod.StateUnknown
		case "exited":
			w.end(c, 0)
		case "code":
			n, err := strconv.ParseInt(value, 10, 32)
			require.NoError(t, err)
			w.end(c, int32(n))
		case "reason":
			c.Reason = value
		case "ended":
			c.FinishedAt = w.now.Wall.Add(-duration(t, value))
		case "in":
			c.SandboxID = value
		case "hash":
			c.Hash = value
		case "image":
			c.Image = value
			c.Hash = hashFor(c.Name, value)
		default:
			t.Fatalf("container %s: unknown word %q", id, word)
		}
	}
}

func (w *world) container(name, id, sandbox string, attempt uint32) pod.Container {
	c := pod.Container{ID: id, Name: name, SandboxID: sandbox, Attempt: attempt, CreatedAt: w.now.Wall}
	if spec, _ := pod.Find(&w.pod.Spec, name); spec != nil {
		c.Image, c.Hash = spec.Image, pod.ContainerHash(spec)
	}
	return c
}

func (w *world) end(c *pod.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt, c.Reason = pod.StateExited, code, w.now.Wall, "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
}

// fault is how an action of a transcript goes wrong:
//
//	create-container web: exists [reason] [landed]
//	pull-image web: pending
//
// With "landed" the runtime did it all the same, with "idle" it says that it did
// and did nothing.
type fault struct {
	class   pod.Class
	reason  string
	landed  bool
	idle    bool
	pending bool
}

func parseFaults(t *testing.T, text string) map[string]fault {
	t.Helper()
	faults := map[string]fault{}
	for line := range strings.Lines(text) {
		what, how, ok := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, ok, "a fault is written %q, not %q", "action container: class", line)
		var f fault
		for word := range strings.FieldsSeq(how) {
			switch {
			case word == "pending":
				f.pending = true
			case word == "landed":
				f.landed = true
			case word == "idle":
				f.idle = true
			case classNamed(word) != pod.ClassNone:
				f.class = classNamed(word)
			default:
				f.reason = word
			}
		}
		faults[what] = f
	}
	return faults
}

func classNamed(word string) pod.Class {
	for c := pod.ClassUnknown; c <= pod.ClassConflict; c++ {
		if c.String() == word {
			return c
		}
	}
	return pod.ClassNone
}

// act runs the pulls and the wave of the last plan against the runtime.
func (w *world) act(t *testing.T, text string) {
	t.Helper()
	w.execute(t, parseFaults(t, text))
}

// execute runs the pulls and the wave of the last plan, with faults by action.
func (w *world) execute(t rapid.TB, faults map[string]fault) {
	t.Helper()
	var results []plan.Result
	for _, a := range append(slices.Clone(w.last.Pulls), w.last.Wave...) {
		f := faults[strings.TrimSpace(a.Op.String()+" "+a.Container)]
		if f.pending {
			continue
		}
		r := plan.Result{Action: a}
		if f.class != pod.ClassNone {
			r.Err = pod.Errorf(f.class, f.reason, "cannot %v: %v", a.Op, f.class)
		}
		if f.landed || (r.Err == nil && !f.idle) {
			w.effect(t, a)
		}
		if a.Op == plan.OpPullImage && r.Err == nil {
			r.Image = "resolved/" + a.Image
		}
		results = append(results, r)
	}
	w.rec = plan.Settle(w.rec, results, plan.DefaultLimits(), w.now)
	w.mono = w.mono.Add(1)
	w.actedAt = w.mono
}

// effect is what an action does to the runtime.
func (w *world) effect(t rapid.TB, a plan.Action) {
	t.Helper()
	at := slices.IndexFunc(w.runtime.Containers, func(c pod.Container) bool { return c.ID == a.ID })
	switch a.Op {
	case plan.OpCreateSandbox:
		w.runtime.Sandboxes = append(w.runtime.Sandboxes, w.sandbox(a.Attempt))
	case plan.OpCreateContainer:
		c := w.container(a.Container, fmt.Sprintf("%s-%d", a.Container, a.Attempt), a.ID, a.Attempt)
		c.State, c.ImageID = pod.StateCreated, a.Image
		w.runtime.Containers = append(w.runtime.Containers, c)
	case plan.OpStartContainer:
		w.runtime.Containers[at].State = pod.StateRunning
		w.runtime.Containers[at].StartedAt = w.now.Wall
	case plan.OpStopContainer:
		w.end(&w.runtime.Containers[at], w.stopCode)
	case plan.OpKillContainer:
		w.end(&w.runtime.Containers[at], 137)
	case plan.OpRemoveContainer:
		w.runtime.Containers = slices.Delete(w.runtime.Containers, at, at+1)
	case plan.OpStopSandbox, plan.OpRemoveSandbox:
		i := slices.IndexFunc(w.runtime.Sandboxes, func(s pod.Sandbox) bool { return s.ID == a.ID })
		require.GreaterOrEqual(t, i, 0, "%v names no sandbox", a)
		w.runtime.Sandboxes[i].Ready = false
		if a.Op == plan.OpRemoveSandbox {
			w.runtime.Sandboxes = slices.Delete(w.runtime.Sandboxes, i, i+1)
		}
	case plan.OpSetUpVolumes, plan.OpTearDownVolumes, plan.OpPullImage:
	}
}
