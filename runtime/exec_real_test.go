package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// processesOf returns the processes in the cgroup of a container, by ID.
func processesOf(t *testing.T, containerID string) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	found := map[int]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), containerID) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		found[pid] = strings.ReplaceAll(string(words), "\x00", " ")
	}
	return found
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	return parent
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(entries)
}

// daemonOf returns the process ID of the containerd whose files are in a directory.
func daemonOf(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		words := strings.Split(string(text), "\x00")
		if err == nil && filepath.Base(words[0]) == "containerd" && strings.Contains(string(text), dir) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(t, err)
			return pid
		}
	}
	t.Fatalf("no containerd runs in %s", dir)
	return 0
}

// TestRealExec: what a command says and how it ends, and that one whose time is
// over leaves neither a process nor a descriptor (INV-26), whatever it started.
func TestRealExec(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			_, ids := r.start(t, newPod("exec", shell("main", "while :; do sleep 0.5; done")))
			id := ids["main"]
			ctx := t.Context()
			run := func(timeout time.Duration, command ...string) (string, int, error) {
				return r.ExecSync(ctx, id, command, timeout, 100)
			}

			said, code, err := run(time.Minute, "sh", "-c", "echo out; echo err >&2; exit 7")
			require.NoError(t, err)
			require.Equal(t, "out\nerr\n", said)
			require.Equal(t, 7, code)
			said, code, err = run(time.Minute, "sh", "-c", "yes | head -c 5000; echo done >&2")
			require.NoError(t, err)
			require.Zero(t, code)
			require.Len(t, said, 100)
			_, _, err = run(time.Minute, "/no/such/program")
			require.Equal(t, pod.ClassUnknown, pod.ClassOf(err), "it was not run: %v", err)

			// left counts what runs in the container beside its own program and the
			// sleep of that.
			left := func() int {
				n := 0
				for _, words := range processesOf(t, id) {
					if strings.Contains(words, "sleep") && words != "sleep 0.5 " && !strings.Contains(words, "while :; do sleep 0.5; done") {
						n++
					}
				}
				return n
			}
			require.Zero(t, left())
			shim := 0
			for pid, words := range processesOf(t, id) {
				if strings.HasPrefix(words, "sh ") {
					shim = parentOf(t, pid)
				}
			}
			require.NotZero(t, shim)
			daemon := daemonOf(t, r.containerd.Dir())
			shimFiles, daemonFiles := openFiles(t, shim), openFiles(t, daemon)
			for _, script := range []string{
				"sleep 1000", "sleep 1001 & sleep 1002; true", "(sleep 1003 &) ; sleep 1004", "trap '' TERM; while :; do sleep 1005; done",
			} {
				var all sync.WaitGroup
				for range 13 {
					all.Go(func() {
						_, _, err := run(time.Second, "sh", "-c", script)
						if pod.ClassOf(err) != pod.ClassDeadline {
							t.Errorf("%s: %v", script, err)
						}
					})
				}
				all.Wait()
			}
			require.Zero(t, left(), "%v", processesOf(t, id))
			require.Eventually(t, func() bool { return len(processesOf(t, id)) <= 2 }, time.Minute, 50*time.Millisecond, "not even the dead: %v", processesOf(t, id))
			require.Eventually(t, func() bool { return openFiles(t, shim) <= shimFiles+2 && openFiles(t, daemon) <= daemonFiles+5 }, time.Minute, 50*time.Millisecond,
				"descriptors of the shim %d and then %d, of containerd %d and then %d", shimFiles, openFiles(t, shim), daemonFiles, openFiles(t, daemon))

			// What the container's own program started stays, whenever it did.
			_, code, err = run(time.Minute, "sh", "-c", "setsid sleep 2000 >/dev/null 2>&1 &")
			require.NoError(t, err)
			require.Zero(t, code)
			_, _, err = run(time.Second, "sleep", "1000")
			require.Equal(t, pod.ClassDeadline, pod.ClassOf(err))
			require.Eventually(t, func() bool { return left() == 1 }, time.Minute, 50*time.Millisecond)

			// A runtime that is away is not the command's fault.
			require.NoError(t, r.containerd.Kill9(ctx))
			_, _, err = run(time.Second, "true")
			require.Equal(t, pod.ClassUnavailable, pod.ClassOf(err), "%v", err)
			require.NoError(t, r.containerd.Restart(ctx))
		})
	}
}
