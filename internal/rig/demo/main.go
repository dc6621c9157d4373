// Command demo brings up a private containerd with a nodelet on it, and takes
// both away again. It is the program behind make demo and make demo-down.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/mount-utils"

	"nodelet.dev/nodelet/internal/rig"
)

// readyWait bounds how long the demo waits for its pods.
const readyWait = 3 * time.Minute

// demo is one demonstration: everything of it is below dir.
type demo struct {
	dir       string // /var/tmp/nodelet-demo
	nodelet   string // the binary
	manifests string // the pods to show
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("usage: demo up|down DIR NODELET MANIFESTS")
	}
	d := demo{dir: args[1], nodelet: args[2], manifests: args[3]}
	switch args[0] {
	case "up":
		return d.up(ctx)
	case "down":
		return d.down(ctx)
	}
	return fmt.Errorf("unknown command %q, want up or down", args[0])
}

func (d demo) path(elem ...string) string { return filepath.Join(append([]string{d.dir}, elem...)...) }

func (d demo) up(ctx context.Context) error {
	runtime, err := d.containerd(ctx)
	if err != nil {
		return err
	}
	if err := d.copyManifests(); err != nil {
		return err
	}
	if err := d.agent(ctx, runtime.Endpoint()); err != nil {
		return err
	}
	say("waiting until the pods are ready")
	text, err := d.waitReady(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s\n", text)
	fmt.Printf(`Try next:
  %[1]s status --run-dir %[2]s
  sed -i 's/hello/good day/' %[3]s/web.yaml      # the pod is replaced, the old one ends first
  rm %[3]s/flaky.yaml                            # the pod ends and nothing of it stays
The end: make demo-down
`, d.nodelet, d.path("run"), d.path("manifests"))
	return nil
}

// containerd starts the private runtime, or finds the one of an earlier run.
func (d demo) containerd(ctx context.Context) (*rig.Containerd, error) {
	dir := d.path("containerd")
	if c, err := rig.Open(dir); err == nil {
		say("containerd is there already, in %s", dir)
		if !c.Running() {
			return c, c.Restart(ctx)
		}
		return c, nil
	}
	say("starting a private containerd in %s and importing its images", dir)
	return rig.Start(ctx, rig.Options{Dir: dir, Flavor: rig.Debian})
}

func (d demo) copyManifests() error {
	to := d.path("manifests")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("cannot make the manifest directory: %w", err)
	}
	say("putting the pods of %s into %s", d.manifests, to)
	files, err := filepath.Glob(filepath.Join(d.manifests, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("cannot read a manifest: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600); err != nil {
			return fmt.Errorf("cannot write a manifest: %w", err)
		}
	}
	return nil
}

// agent starts nodelet in a session of its own, unless it answers already.
func (d demo) agent(ctx context.Context, endpoint string) error {
	if _, err := d.status(ctx); err == nil {
		say("nodelet is running already")
		return nil
	}
	log, err := os.OpenFile(d.path("nodelet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	say("starting nodelet, its log is %s", log.Name())
	// The agent outlives this command, so no context is bound to it.
	process, err := os.StartProcess(d.nodelet, []string{
		d.nodelet, "run", "--root-dir", d.path("root"), "--run-dir", d.path("run"), "--pod-logs-dir", d.path("logs"),
		"--static-pod-path", d.path("manifests"), "--runtime-endpoint", endpoint, "-v", "2",
	}, &os.ProcAttr{Files: []*os.File{nil, log, log}, Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("cannot start nodelet: %w", err)
	}
	if err := os.WriteFile(d.path("nodelet.pid"), []byte(strconv.Itoa(process.Pid)), 0o600); err != nil {
		return fmt.Errorf("cannot note the process: %w", err)
	}
	return process.Release()
}

// status returns what nodelet status prints.
func (d demo) status(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, d.nodelet, "status", "--run-dir", d.path("run")).CombinedOutput()
	return string(out), err
}

// waitReady waits until every pod runs with all containers ready, or is done,
// and tells of each change meanwhile.
func (d demo) waitReady(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	seen := map[string]string{}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		text, err := d.status(ctx)
		if err == nil && d.progress(text, seen) {
			return text, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the pods are not ready: %w\n%s\nsee %s", ctx.Err(), text, d.path("nodelet.log"))
		case <-ticker.C:
		}
	}
}

// progress prints the pods whose row changed and reports whether all are ready.
func (d demo) progress(text string, seen map[string]string) bool {
	_, table, found := strings.Cut(text, "NAMESPACE")
	if !found {
		return false
	}
	ready := true
	rows := strings.Split(strings.TrimSpace(table), "\n")[1:]
	for _, row := range rows {
		f := strings.Fields(row)
		if len(f) < 5 {
			continue
		}
		name, state := f[1], f[2]+" "+f[3]
		if seen[name] != state {
			seen[name] = state
			say("  %-8s %s", name, state)
		}
		have, want, _ := strings.Cut(f[2], "/")
		ready = ready && (f[3] == "Completed" || (f[3] == "Running" && have == want))
	}
	files, err := filepath.Glob(d.path("manifests", "*.yaml"))
	return err == nil && ready && len(rows) >= len(files)
}

// down ends the agent, then the runtime with all it runs, and removes the rest.
func (d demo) down(ctx context.Context) error {
	if text, err := os.ReadFile(d.path("nodelet.pid")); err == nil {
		if err := endProcess(ctx, strings.TrimSpace(string(text)), d.nodelet); err != nil {
			return err
		}
	}
	if c, err := rig.Open(d.path("containerd")); err == nil {
		say("ending containerd and everything that it runs")
		if err := c.Stop(ctx); err != nil {
			return err
		}
	}
	if err := unmountBelow(d.dir); err != nil {
		return err
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("cannot remove %s: %w", d.dir, err)
	}
	say("nothing is left of %s", d.dir)
	return nil
}

// endProcess ends the agent, if the pid still belongs to one.
func endProcess(ctx context.Context, pid, binary string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return nil
	}
	exe := func() string {
		target, err := os.Readlink(filepath.Join("/proc", pid, "exe"))
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(target, " (deleted)")
	}
	if exe() != binary {
		return nil
	}
	say("ending nodelet (pid %s)", pid)
	if err := syscall.Kill(n, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot end nodelet: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for exe() == binary {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot end nodelet (pid %s): it is still running", pid)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// unmountBelow unmounts what pods had in memory, the innermost first.
func unmountBelow(dir string) error {
	mounter := mount.New("")
	points, err := mounter.List()
	if err != nil {
		return fmt.Errorf("cannot list the mounts: %w", err)
	}
	for _, p := range slices.Backward(points) {
		if !strings.HasPrefix(p.Path, dir+"/") {
			continue
		}
		if err := mounter.Unmount(p.Path); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", p.Path, err)
		}
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }
