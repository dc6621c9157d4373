// Package packaging_test holds what is installed beside the program against what
// systemd, man and the program itself make of it.
package packaging_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/config"
)

// command runs a program that must succeed and returns what it wrote.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v\n%s", name, args, out)
	return string(out)
}

// install makes an installation below a directory of its own.
func install(t *testing.T, bin, dest string) string {
	t.Helper()
	return command(t, "make", "--no-print-directory", "install", "DESTDIR="+dest, "BIN="+bin)
}

// listing returns all files, and the directories that are ours, with their modes.
func listing(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name := strings.TrimPrefix(path, root)
		ours := strings.HasPrefix(name, "/etc/") || strings.HasPrefix(name, "/var/lib/")
		if d.IsDir() && !ours {
			return nil
		}
		info, err := d.Info()
		require.NoError(t, err)
		list = append(list, info.Mode().String()+" "+name)
		return nil
	}))
	slices.Sort(list)
	return list
}

var kept = []string{
	"-rw-r--r-- /etc/nodelet/config.yaml",
	"drwx------ /etc/nodelet/manifests",
	"drwx------ /var/lib/nodelet",
	"drwxr-xr-x /etc/nodelet",
	"drwxr-xr-x /etc/nodelet/config.d",
}

// TestInstall: all of it in its place, what people wrote is kept, and it leaves
// nothing behind but configuration and state.
func TestInstall(t *testing.T) {
	bin, dest := t.TempDir(), t.TempDir()
	out := install(t, bin, dest)
	require.Contains(t, out, "Next: systemctl enable --now nodelet")
	list := listing(t, dest)
	var manual []string
	rest := slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		if strings.Contains(name, "/share/man/man8/") {
			manual = append(manual, name)
			return true
		}
		return false
	})
	require.Equal(t, []string{
		"-rw-r--r-- /etc/nodelet/config.yaml",
		"-rw-r--r-- /usr/local/lib/systemd/system/nodelet.service",
		"-rw-r--r-- /usr/local/lib/sysusers.d/nodelet.conf",
		"-rw-r--r-- /usr/local/share/bash-completion/completions/nodelet",
		"-rw-r--r-- /usr/local/share/fish/vendor_completions.d/nodelet.fish",
		"-rw-r--r-- /usr/local/share/man/man5/nodelet.yaml.5",
		"-rw-r--r-- /usr/local/share/zsh/site-functions/_nodelet",
		"-rwxr-xr-x /usr/local/bin/nodelet",
		"drwx------ /etc/nodelet/manifests",
		"drwx------ /var/lib/nodelet",
		"drwxr-xr-x /etc/nodelet",
		"drwxr-xr-x /etc/nodelet/config.d",
	}, rest)
	for _, page := range []string{"nodelet.8", "nodelet-run.8", "nodelet-config-view.8", "nodelet-version.8"} {
		require.Contains(t, manual, "-rw-r--r-- /usr/local/share/man/man8/"+page)
	}
	checkExample(t, filepath.Join(dest, "etc/nodelet/config.yaml"))
	checkPages(t, filepath.Join(dest, "usr/local/share/man"))
	command(t, "bash", "-n", filepath.Join(dest, "usr/local/share/bash-completion/completions/nodelet"))

	edited := filepath.Join(dest, "etc/nodelet/config.yaml")
	require.NoError(t, os.WriteFile(edited, []byte("mine"), 0o600))
	require.NoError(t, os.Chmod(edited, 0o644))
	install(t, bin, dest)
	text, err := os.ReadFile(edited)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text), "what people wrote is kept")
	require.Equal(t, list, listing(t, dest))

	out = command(t, "make", "--no-print-directory", "uninstall", "DESTDIR="+dest, "BIN="+bin)
	require.Contains(t, out, "Left in place: "+dest+"/etc/nodelet and "+dest+"/var/lib/nodelet")
	require.Equal(t, kept, listing(t, dest))
}

// checkExample: the example is a configuration that changes nothing, and says the
// defaults: with its comment signs taken away it changes nothing either.
func checkExample(t *testing.T, path string) {
	t.Helper()
	load := func(path string) config.Configuration {
		l, err := config.Load(config.Sources{File: path, FileRequired: true})
		require.NoError(t, err)
		return l.Config
	}
	require.Equal(t, config.Default(), load(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var all strings.Builder
	shown := 0
	for line := range strings.Lines(string(text)) {
		indent, body, commented := strings.Cut(line, "#")
		if commented && strings.TrimSpace(indent) == "" && body[0] != ' ' && body[0] != '\n' {
			line = indent + body
			shown++
		}
		all.WriteString(line)
	}
	require.Greater(t, shown, 10)
	full := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(full, []byte(all.String()), 0o600))
	require.Equal(t, config.Default(), load(full), all.String())
}

// checkPages: groff has nothing to say about any page.
func checkPages(t *testing.T, dir string) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(dir, "man?", "*"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 5)
	for _, page := range pages {
		cmd := exec.CommandContext(t.Context(), "groff", "-man", "-ww", "-Tutf8", "-P-cbou", page)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		require.NoError(t, err, page)
		require.Empty(t, complaints.String(), page)
		require.NotContains(t, string(out), "\x1b")
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"} {
			require.Contains(t, string(out), section, page)
		}
	}
}

// unit returns the directives of the unit, "Section.Name" to their values.
func unit(t *testing.T) (directives map[string][]string, text string) {
	t.Helper()
	raw, err := os.ReadFile("systemd/nodelet.service")
	require.NoError(t, err)
	directives = map[string][]string{}
	section := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case ok && !strings.HasPrefix(line, "#"):
			directives[section+"."+name] = append(directives[section+"."+name], value)
		}
	}
	return directives, string(raw)
}

// TestUnitDirectives: what the agent relies on, and what must not be there.
func TestUnitDirectives(t *testing.T) {
	got, _ := unit(t)
	for name, want := range map[string]string{
		"Service.Type": "notify", "Service.WatchdogSec": "30s", "Service.KillMode": "process",
		"Service.Restart": "always", "Service.RestartSec": "2s", "Unit.StartLimitIntervalSec": "0",
		"Service.RestartPreventExitStatus": "78", "Service.TimeoutStopSec": "30s", "Service.ExecReload": "/bin/kill -HUP $MAINPID",
		"Unit.Wants": "containerd.service", "Unit.After": "containerd.service local-fs.target",
		"Service.StateDirectory": "nodelet", "Service.StateDirectoryMode": "0700",
		"Service.RuntimeDirectory": "nodelet", "Service.RuntimeDirectoryPreserve": "yes",
		"Service.OOMScoreAdjust": "-999", "Service.LimitNOFILE": "1048576", "Service.TasksMax": "infinity",
		"Install.WantedBy": "multi-user.target",
	} {
		require.Equal(t, []string{want}, got[name], name)
	}
	for _, name := range []string{"Unit.Requires", "Unit.BindsTo", "Service.Delegate", "Service.PrivateTmp", "Service.ProtectSystem"} {
		require.NotContains(t, got, name)
	}
	require.NotContains(t, strings.Join(got["Unit.After"], " ")+strings.Join(got["Unit.Wants"], " "), "network-online")
}

// TestUnitVerifies: systemd finds no fault with the unit. The program is not
// installed here, so another one stands in for it; manual pages are not either.
func TestUnitVerifies(t *testing.T) {
	_, text := unit(t)
	require.Contains(t, text, "ExecStart=/usr/local/bin/nodelet run\n")
	path := filepath.Join(t.TempDir(), "nodelet.service")
	verify := func(text string) string {
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, "/usr/local/bin/nodelet", "/bin/true", 1)), 0o600))
		require.NoError(t, os.Chmod(path, 0o644))
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	require.Empty(t, verify(text))
	require.Contains(t, verify(strings.Replace(text, "WatchdogSec=", "WatchDogSec=", 1)), "WatchDogSec", "the check sees faults")
}
