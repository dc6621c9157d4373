package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

// world is one pod, one runtime and one clock, moved by the commands of a
// transcript. It plays the worker: it keeps the record from one plan to the
// next, runs waves against its model of the runtime, and settles the results.
type world struct {
	pod      *corev1.Pod
	runtime  pod.Observation
	rec      pod.Record
	now      pod.Stamp
	mono     time.Time // orders observations, as a monotonic clock does
	actedAt  time.Time
	last     plan.Plan
	shown    map[string]string // the durable record as printed last
	stopCode int32             // what stopped containers exit with
	adopting bool              // the next plan learns what "runtime" laid down
}

func start() time.Time { return time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC) }

func newWorld(p *corev1.Pod) *world {
	return &world{
		pod: p, mono: start(),
		now:      pod.Stamp{Wall: start(), Boot: time.Hour, BootID: "boot1"},
		stopCode: 143,
	}
}

// parsePod makes a pod called default/shop from the YAML of a spec, with the
// few defaults that decisions depend on.
func parsePod(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "uid-1"}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Image == "" {
				list[i].Image = list[i].Name + ":1"
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := &p.Spec.EphemeralContainers[i]; c.Image == "" {
			c.Image = c.Name + ":1"
		}
	}
	return p
}

// command runs one directive of a transcript.
func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "edit": // the desired pod changes in place
		w.pod = parsePod(t, d.Input)
		if d.HasArg("deletion-grace") {
			n := int64(0)
			d.ScanArgs(t, "deletion-grace", &n)
			w.pod.DeletionGracePeriodSeconds = &n
		}
	case "runtime": // what the runtime has, in full, of a pod whose volumes are set up;
		// what the first plan learns about its sandboxes is printed with "full" only
		w.runtime = pod.Observation{}
		w.rec.VolumesReady = !d.HasArg("volumes-missing")
		w.adopting = !d.HasArg("full")
		w.change(t, d.Input)
	case "change": // what became different in the runtime
		w.change(t, d.Input)
	case "record": // YAML laid over the durable record
		require.NoError(t, yaml.UnmarshalStrict([]byte(d.Input), &w.rec))
	case "now":
		w.advance(t, d)
	case "step": // the wall clock jumps, time itself does not
		w.now.Wall = w.now.Wall.Add(duration(t, d.CmdArgs[0].Key))
	case "restart-agent":
		w.restartAgent(t)
	case "lose-record":
		w.rec = pod.Record{}
	case "reboot":
		w.reboot(t)
	case "verdict":
		w.verdict(d)
	case "stop":
		w.rec = plan.RequestStop(w.rec, w.pod, stopRequest(t, d), w.now)
	case "stop-code":
		d.ScanArgs(t, "code", &w.stopCode)
	case "observe": // plan without printing; what it taught is remembered
		w.plan(false, false)
	case "plan":
		return w.plan(d.HasArg("stale"), d.HasArg("unseen"))
	case "act": // run the last plan's pulls and wave, then plan again
		w.act(t, d.Input)
		return w.plan(false, false)
	case "status": // what the user sees after the last plan
		return w.status()
	case "probes": // which are to run now
		return w.probes()
	case "run": // plan and act until there is nothing to do
		return w.run(t, d.Input)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return ""
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	v, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	require.NoError(t, err)
	return v
}

func (w *world) advance(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	v := duration(t, d.CmdArgs[0].Key)
	w.now, w.mono = w.now.Add(v), w.mono.Add(v)
}

// restartAgent loses what is not durable.
func (w *world) restartAgent(t rapid.TB) {
	t.Helper()
	text, err := json.Marshal(w.rec)
	require.NoError(t, err)
	w.rec = pod.Record{}
	require.NoError(t, json.Unmarshal(text, &w.rec))
	w.actedAt = time.Time{}
}

// reboot ends everything that ran; the machine is back a minute later.
func (w *world) reboot(t rapid.TB) {
	t.Helper()
	w.restartAgent(t)
	w.now = pod.Stamp{Wall: w.now.Wall.Add(time.Minute), Boot: 20 * time.Second, BootID: w.now.BootID + "+"}
	w.mono = w.mono.Add(time.Minute)
	for i := range w.runtime.Sandboxes {
		w.runtime.Sandboxes[i].Ready = false
	}
	for i := range w.runtime.Containers {
		if c := &w.runtime.Containers[i]; c.State == pod.StateRunning {
			c.State, c.ExitCode, c.Reason, c.FinishedAt = pod.StateExited, 255, "Unknown", w.now.Wall
		}
	}
}

func (w *world) verdict(d *datadriven.TestData) {
	name := d.CmdArgs[0].Key
	inst, _ := w.snapshot().Latest(name)
	v := pod.Verdicts{ContainerID: inst.ID}
	parse := map[string]pod.Verdict{"none": pod.NoVerdict, "passed": pod.Passed, "failed": pod.Failed}
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "startup":
			v.Startup = parse[a.Vals[0]]
		case "liveness":
			v.Liveness = parse[a.Vals[0]]
		case "readiness":
			v.Readiness = parse[a.Vals[0]]
		case "id":
			v.ContainerID = a.Vals[0]
		}
	}
	w.rec = plan.Probed(w.rec, w.snapshot(), v)
}

func (w *world) probes() string {
	var b strings.Builder
	for _, t := range plan.Probes(plan.ProbeInput{
		Pod: w.pod, Observed: w.snapshot(), Record: w.rec, HostIPs: []string{"192.0.2.7"}, Now: w.now,
	}) {
		fmt.Fprintf(&b, "%v of %s at %q after %v, %v so far\n", t.Kind, t.ContainerID, t.IP, t.Age, t.Known)
	}
	if b.Len() == 0 {
		return "none\n"
	}
	return b.String()
}

func stopRequest(t *testing.T, d *datadriven.TestData) pod.StopRequest {
	t.Helper()
	req := pod.StopRequest{Delete: d.HasArg("delete")}
	if d.HasArg("grace") {
		var n int64
		d.ScanArgs(t, "grace", &n)
		req.GraceSeconds = &n
	}
	d.MaybeScanArgs(t, "reason", &req.Reason)
	return req
}

// plan computes and prints, and keeps the record.
func (w *world) plan(stale, unseen bool) string {
	w.mono = w.mono.Add(time.Millisecond)
	seen := w.snapshot()
	if stale {
		seen.TakenAt = w.actedAt.Add(-time.Millisecond)
	}
	if unseen {
		seen = pod.Observation{}
	}
	before := w.rec.Phase
	w.last = plan.Compute(plan.Input{
		Pod: w.pod, Observed: seen, Record: w.rec,
		ActedAt: w.actedAt, Now: w.now, Limits: plan.DefaultLimits(),
	})
	w.rec = w.last.Record
	return w.render(before)
}

func (w *world) snapshot() pod.Observation {
	o := pod.Observation{TakenAt: w.mono}
	o.Sandboxes = append(o.Sandboxes, w.runtime.Sandboxes...)
	o.Containers = append(o.Containers, w.runtime.Containers...)
	o.Sort()
	return o
}

// run plans and acts until nothing is left to do, at most so many times.
func (w *world) run(t *testing.T, faults string) string {
	t.Helper()
	out := w.plan(false, false)
	for range 30 {
		if len(w.last.Wave)+len(w.last.Pulls) == 0 {
			return out
		}
		w.act(t, faults)
		out += "--\n" + w.plan(false, false)
	}
	return out + "does not settle\n"
}

// render prints what the plan says and what changed in the durable record.
func (w *world) render(before pod.Phase) string {
	var b strings.Builder
	b.WriteString(w.last.String())
	if w.last.InspectFirst {
		return b.String()
	}
	if at := w.last.WakeAt; !at.IsZero() {
		fmt.Fprintf(&b, "wake in %v\n", at.Until(w.now))
	}
	if w.rec.Phase != before {
		fmt.Fprintf(&b, "phase %v\n", w.rec.Phase)
	}
	now := flatten(w.rec)
	for _, line := range changes(w.shown, now) {
		part, _, _ := strings.Cut(line, " ")
		if w.adopting && (part == "sandbox" || part == "initialized" || strings.HasPrefix(part, "started=")) {
			continue
		}
		fmt.Fprintf(&b, "record %s\n", line)
	}
	w.shown, w.adopting = now, false
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
