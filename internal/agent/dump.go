package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/server"
	"nodelet.dev/nodelet/podworkers"
)

// stateDump is what the agent knows, for whoever looks for a fault. It has no
// specs of pods, since values of variables may be secret.
type stateDump struct {
	TakenAt time.Time            `json:"takenAt"`
	Agent   server.Status        `json:"agent"`
	Config  config.Configuration `json:"config"`
	// InRound is for how long syncLoop has been in its round.
	InRound string    `json:"syncLoopInRound,omitempty"`
	PLEG    *plegDump `json:"pleg,omitempty"`
	Pods    []podDump `json:"pods"`
}

type plegDump struct {
	Looped    time.Time `json:"looped,omitzero"`
	Relisted  time.Time `json:"relisted,omitzero"`
	Stream    bool      `json:"stream"`
	Problem   string    `json:"problem,omitempty"`
	Slow      string    `json:"slow,omitempty"`
	SlowSince time.Time `json:"slowSince,omitzero"`
}

// podDump is one pod.
type podDump struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Source    string `json:"source"`
	Origin    string `json:"origin"`
	// HasWorker is false for a pod that waits to be started.
	HasWorker bool              `json:"hasWorker"`
	Phase     string            `json:"phase"`
	Status    corev1.PodPhase   `json:"statusPhase,omitempty"`
	Images    map[string]string `json:"images"`
	Waits     []pod.Wait        `json:"waits,omitempty"`
	Plan      planDump          `json:"plan"`
	Doing     doingDump         `json:"doing"`
	Observed  observedDump      `json:"observed"`
	// Record is what survives the agent, Memory what does not.
	Record pod.Record `json:"record"`
	Memory memoryDump `json:"memory"`
}

// planDump is the newest plan.
type planDump struct {
	Wave   []string  `json:"wave,omitempty"`
	Pulls  []string  `json:"pulls,omitempty"`
	WakeAt time.Time `json:"wakeAt,omitzero"`
}

// doingDump is what is under way.
type doingDump struct {
	Wave  []string  `json:"wave,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Pulling are the containers for which a registry is asked, since when.
	Pulling map[string]time.Time `json:"pulling,omitempty"`
}

// observedDump is what the runtime last said.
type observedDump struct {
	TakenAt    time.Time       `json:"takenAt,omitzero"`
	Sandboxes  []sandboxDump   `json:"sandboxes,omitempty"`
	Containers []containerDump `json:"containers,omitempty"`
}

type sandboxDump struct {
	ID      string   `json:"id"`
	Attempt uint32   `json:"attempt"`
	Ready   bool     `json:"ready"`
	IPs     []string `json:"ips,omitempty"`
	Spec    string   `json:"specHash,omitempty"`
}

type containerDump struct {
	ID       string `json:"id"`
	Sandbox  string `json:"sandbox"`
	Name     string `json:"name"`
	Attempt  uint32 `json:"attempt"`
	State    string `json:"state"`
	ExitCode int32  `json:"exitCode"`
	Reason   string `json:"reason,omitempty"`
	Image    string `json:"image"`
	Hash     string `json:"hash,omitempty"`
}

// memoryDump is the part of a record that is lost with the agent.
type memoryDump struct {
	VolumesReady   bool                  `json:"volumesReady"`
	VolumesFailure *pod.Failure          `json:"volumesFailure,omitempty"`
	StopFailure    *pod.Failure          `json:"stopFailure,omitempty"`
	Stopped        []string              `json:"stoppedSandboxes,omitempty"`
	Pulled         map[string]pod.Pulled `json:"pulled,omitempty"`
}

// Debug implements server.Agent.
func (a *Agent) Debug() server.Debug {
	d := server.Debug{Profiling: a.cfg.EnableProfilingHandler}
	if a.cfg.EnableStateDump {
		d.State = func(ctx context.Context) any { return a.dump(ctx) }
	}
	return d
}

func (a *Agent) dump(ctx context.Context) stateDump {
	h := a.pleg.Health()
	d := stateDump{
		TakenAt: time.Now(), Agent: a.Status(ctx), Config: shownConfig(*a.live.Load()),
		InRound: a.sinceRound().Round(time.Millisecond).String(),
		PLEG:    &plegDump{Looped: h.Looped, Relisted: h.Relisted, Stream: h.Stream, Slow: string(h.Slow), SlowSince: h.SlowSince},
		Pods:    []podDump{},
	}
	if h.Err != nil {
		d.PLEG.Problem = h.Err.Error()
	}
	for _, r := range a.board.snapshot() {
		p := dumpOf(r)
		p.HasWorker = a.board.has(r.Pod.UID)
		acts, since, asking := a.courses.now(r.Pod.UID)
		p.Doing = doingDump{Wave: texts(acts), Since: since, Pulling: asking}
		d.Pods = append(d.Pods, p)
	}
	return d
}

func dumpOf(r podworkers.Report) podDump {
	d := podDump{
		Namespace: r.Pod.Namespace, Name: r.Pod.Name, UID: string(r.Pod.UID), Source: pod.Source(r.Pod), Origin: pod.Origin(r.Pod),
		Phase: r.Phase.String(), Status: r.Status.Phase, Images: imagesOf(&r.Pod.Spec), Waits: r.Waits,
		Plan:     planDump{Wave: texts(r.Plan.Wave), Pulls: texts(r.Plan.Pulls), WakeAt: r.Plan.WakeAt.Wall},
		Observed: observedDump{TakenAt: r.Observed.TakenAt},
		Record:   r.Record,
		Memory: memoryDump{
			VolumesReady: r.Record.VolumesReady, VolumesFailure: r.Record.VolumesFailure,
			StopFailure: r.Record.Sandbox.StopFailure, Stopped: r.Record.Sandbox.Stopped, Pulled: map[string]pod.Pulled{},
		},
	}
	d.Record.Status = nil // the list of pods has it
	for name, c := range r.Record.Containers {
		if c.Pulled.Image != "" {
			d.Memory.Pulled[name] = c.Pulled
		}
	}
	for _, s := range r.Observed.Sandboxes {
		d.Observed.Sandboxes = append(d.Observed.Sandboxes, sandboxDump{ID: s.ID, Attempt: s.Attempt, Ready: s.Ready, IPs: s.IPs, Spec: s.Spec})
	}
	for _, c := range r.Observed.Containers {
		d.Observed.Containers = append(d.Observed.Containers, containerDump{
			ID: c.ID, Sandbox: c.SandboxID, Name: c.Name, Attempt: c.Attempt, State: c.State.String(), ExitCode: c.ExitCode,
			Reason: c.Reason, Image: c.Image, Hash: c.Hash,
		})
	}
	return d
}

// imagesOf returns the images of all containers by name.
func imagesOf(spec *corev1.PodSpec) map[string]string {
	out := map[string]string{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			out[list[i].Name] = list[i].Image
		}
	}
	for i := range spec.EphemeralContainers {
		out[spec.EphemeralContainers[i].Name] = spec.EphemeralContainers[i].Image
	}
	return out
}

// shownConfig returns a configuration without what is secret in it.
func shownConfig(c config.Configuration) config.Configuration {
	header := map[string][]string{}
	for name := range c.StaticPodURLHeader {
		header[name] = []string{"REDACTED"}
	}
	c.StaticPodURLHeader = header
	if u, err := url.Parse(c.StaticPodURL); err == nil {
		c.StaticPodURL = u.Redacted()
	} else {
		c.StaticPodURL = "REDACTED"
	}
	return c
}

// keptDumps is how many files of WriteState stay.
const keptDumps = 5

// WriteState writes what the agent knows to a file in the run directory, and
// returns its path. It works while Run runs. A file that only root reads is kinder
// than the log: a dump of a hundred pods is long, and the log has other readers.
func (a *Agent) WriteState(ctx context.Context) (path string, err error) {
	if !a.cfg.EnableStateDump {
		return "", errors.New("cannot write the state: set enableStateDump: true in the configuration and restart nodelet")
	}
	text, err := json.MarshalIndent(a.dump(ctx), "", "  ")
	if err != nil {
		return "", fmt.Errorf("cannot write the state: %w", err)
	}
	path = filepath.Join(a.cfg.RunDirectory, "state-"+time.Now().UTC().Format("20060102T150405.000000000")+".json")
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("cannot write the state: %w", err)
	}
	all, err := filepath.Glob(filepath.Join(a.cfg.RunDirectory, "state-*.json"))
	if err != nil {
		return path, fmt.Errorf("cannot look for older states: %w", err)
	}
	slices.Sort(all) // by age, as they are named
	for _, old := range all[:max(0, len(all)-keptDumps)] {
		if err := os.Remove(old); err != nil {
			return path, fmt.Errorf("cannot remove an older state: %w", err)
		}
	}
	return path, nil
}
