package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// setup logs into a buffer until the test ends.
func setup(t *testing.T, o Options) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	o.Destination.Out = &out
	before := slog.Default()
	stop, err := Setup(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		klog.ClearLogger()
		slog.SetDefault(before)
		require.NoError(t, SetVerbosity(0))
	})
	return &out
}

// logAll writes a line of each kind that the program knows.
func logAll() {
	klog.ErrorS(errors.New("disk full"), "Cannot store", "pod", klog.KRef("dock", "web"), "podUID", "1-2")
	klog.InfoS("Ready", "node", "edge", "count", 2)
	klog.V(1).InfoS("Acting", "container", "main", "multi", "a\nb")
	klog.V(2).InfoS("hidden")
	klog.Warningf("old %s", "way")
	slog.Warn("Event", "pod", "dock/web", "object", "Node/edge", "containerName", "main", "message", "told")
}

// TestText: what is not read by people at once is klog's own text, with the place
// in the code that logged.
func TestText(t *testing.T) {
	out := setup(t, Options{Format: Text, Verbosity: 1})
	logAll()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.GreaterOrEqual(t, len(lines), 5, out.String())
	require.Regexp(t, `^E\d{4} [\d:.]+ +\d+ logs_test.go:\d+\] "Cannot store" err="disk full" pod="dock/web" podUID="1-2"$`, lines[0])
	require.Regexp(t, `^I.* logs_test.go:\d+\] "Ready" node="edge" count=2$`, lines[1])
	require.Contains(t, out.String(), `W`)
	require.Regexp(t, `(?m)^W.*\] "old way"$`, out.String())
	require.Regexp(t, `(?m)^W.* logs_test.go:\d+\] "Event" pod="dock/web"`, out.String())
	require.NotContains(t, out.String(), "hidden")
}

// TestTerminal: short lines, coloured by severity only if that is wanted.
func TestTerminal(t *testing.T) {
	for _, color := range []bool{false, true} {
		out := setup(t, Options{Format: Text, Verbosity: 1, Destination: Destination{Terminal: true, Color: color}})
		logAll()
		red, plain := "", ""
		if color {
			red, plain = "\x1b\\[31m", "\x1b\\[0m"
		}
		require.Regexp(t, `(?m)^`+red+`\d\d:\d\d:\d\d error: Cannot store err="disk full" pod="dock/web" podUID="1-2"`+plain+`$`, out.String())
		require.Regexp(t, `(?m)^\d\d:\d\d:\d\d Ready node="edge" count=2$`, out.String())
		require.Contains(t, out.String(), `warning: old way`)
		require.Equal(t, color, strings.Contains(out.String(), "\x1b"))
	}
}

// TestJSON: one object a line, with the names that collectors look for.
func TestJSON(t *testing.T) {
	out := setup(t, Options{Format: JSON, Verbosity: 1})
	logAll()
	var lines []map[string]any
	for text := range strings.Lines(out.String()) {
		require.True(t, strings.HasPrefix(text, `{"ts":"`), text)
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		require.NotEmpty(t, line["ts"])
		delete(line, "ts")
		lines = append(lines, line)
	}
	require.Equal(t, []map[string]any{
		{"level": "error", "msg": "Cannot store", "err": "disk full", "pod": "web", "namespace": "dock", "podUID": "1-2"},
		{"level": "info", "msg": "Ready", "node": "edge", "count": 2.0},
		{"level": "debug", "v": 1.0, "msg": "Acting", "container": "main", "multi": "a\nb"},
		{"level": "warning", "msg": "old way"},
		{"level": "warning", "msg": "Event", "pod": "web", "namespace": "dock", "object": "Node/edge", "container": "main", "message": "told"},
	}, lines)
}

// TestVerbosityWhileRunning: a change counts at once, for klog and for slog.
func TestVerbosityWhileRunning(t *testing.T) {
	out := setup(t, Options{Format: JSON})
	debug := func() { klog.V(3).InfoS("three"); slog.Debug("four") }
	debug()
	require.Empty(t, out.String())
	require.NoError(t, SetVerbosity(4))
	debug()
	require.Contains(t, out.String(), `"msg":"three","v":3`)
	require.Contains(t, out.String(), `"msg":"four","v":4`)
	require.NoError(t, SetVerbosity(3))
	out.Reset()
	debug()
	require.NotContains(t, out.String(), "four")
	require.ErrorContains(t, SetVerbosity(11), "cannot set the log verbosity to 11: it is a number from 0 to 10")
	_, err := Setup(t.Context(), Options{Format: "xml"})
	require.ErrorContains(t, err, `cannot log in the format "xml": it is text or json`)
	_, err = Setup(t.Context(), Options{Format: Text, Verbosity: -1})
	require.ErrorContains(t, err, "cannot set the log verbosity")
}

// TestHandlers: the JSON form keeps the rules of slog's handlers, with its own
// names for the time and the level.
func TestHandlers(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return newJSON(&out)
	}, func(t *testing.T) map[string]any {
		t.Helper()
		var line map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &line))
		if ts, ok := line["ts"]; ok {
			line[slog.TimeKey] = ts
		}
		return line
	})
}

// TestGroups: attributes and groups of a logger reach every line of text.
func TestGroups(t *testing.T) {
	var out bytes.Buffer
	h := slog.New(&lines{writer: &terminal{out: &out}}).With("a", 1).WithGroup("g").With("b", "x")
	h.Info("one", "c", true)
	require.Contains(t, out.String(), ` one a=1 g.b="x" g.c=true`)
}

// TestDestination: only the very stream of the journal counts, and NO_COLOR and a
// dumb terminal are respected.
func TestDestination(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stream")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	require.True(t, isStream(f, itoa(st.Dev)+":"+itoa(st.Ino)))
	require.False(t, isStream(f, itoa(st.Dev)+":"+itoa(st.Ino+1)))
	require.False(t, isStream(f, ""))
	require.False(t, IsTerminal(f))
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	require.True(t, Color(getenv))
	env["NO_COLOR"] = "1"
	require.False(t, Color(getenv))
	env["NO_COLOR"], env["TERM"] = "", "dumb"
	require.False(t, Color(getenv))
	t.Setenv("JOURNAL_STREAM", "1:1")
	require.False(t, Stderr().Journal)
}

func itoa(n uint64) string {
	text, _ := json.Marshal(n) //nolint:errchkjson // a number
	return string(text)
}

func handle(t *testing.T, h slog.Handler, level slog.Level, msg string, args ...any) {
	t.Helper()
	slog.New(h).Log(context.Background(), level, msg, args...)
}
