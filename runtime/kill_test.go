package runtime

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKillSparesStrangers: a process that is not in the container's cgroup is
// left alone, whatever the runtime said; one that is gone counts as killed.
func TestKillSparesStrangers(t *testing.T) {
	stranger := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, stranger.Start())
	require.ErrorContains(t, killByPidfd(stranger.Process.Pid, "0123456789abcdef"), "does not belong to the container")
	require.NoError(t, stranger.Process.Kill())
	require.Error(t, stranger.Wait(), "it lived until now")
	require.NoError(t, killByPidfd(stranger.Process.Pid, "0123456789abcdef"))
}

func TestPidOf(t *testing.T) {
	for name, test := range map[string]struct {
		info map[string]string
		pid  int
	}{
		"containerd":  {map[string]string{"info": `{"sandboxID":"s","pid":4711,"removing":false}`}, 4711},
		"no process":  {map[string]string{"info": `{"pid":0}`}, 0},
		"the machine": {map[string]string{"info": `{"pid":1}`}, 0},
		"negative":    {map[string]string{"info": `{"pid":-1}`}, 0},
		"not JSON":    {map[string]string{"info": `pid=4711`}, 0},
		"nothing":     {nil, 0},
	} {
		got, err := pidOf(test.info)
		require.Equal(t, test.pid, got, name)
		require.Equal(t, test.pid == 0, err != nil, name)
	}
}

// TestImageWithTag: IMG-1.
func TestImageWithTag(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, want := range map[string]string{
		"web": "web:latest", "web:1": "web:1", "web" + digest: "web" + digest, "web:1" + digest: "web:1" + digest,
		"host.example:5000/a/b": "host.example:5000/a/b:latest", "Web": "", "web:": "", "": "", "a b": "",
	} {
		got, err := imageWithTag(name)
		require.Equal(t, want, got, name)
		require.Equal(t, want == "", err != nil, name)
	}
	for name, want := range map[string]string{"web:latest": "Always", "web:1": "IfNotPresent", "web:latest" + digest: "Always", "web" + digest: "IfNotPresent"} {
		require.EqualValues(t, want, pullPolicy("", name), name)
	}
}
