package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// The release of CRI's own validation suite that belongs to the CRI API in go.mod.
const critestModule = "sigs.k8s.io/cri-tools@v1.37.0"

// spec is the part of a ginkgo report that matters here.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// TestRealCritestOnFake runs CRI's own validation suite against the fake: every spec passes but those that
// testdata/critest.txt names with the reason. It is no unit test, since it builds the suite's program when it is missing.
func TestRealCritestOnFake(t *testing.T) {
	program := buildCritest(t)
	needProcess := readCritestList(t)
	dir := t.TempDir()
	server := fakecri.New(critestOptions())
	defer server.Close()
	require.NoError(t, server.Listen(filepath.Join(dir, "s")))

	patterns := make([]string, 0, len(needProcess))
	for name := range needProcess {
		patterns = append(patterns, regexp.QuoteMeta(name))
	}
	report := filepath.Join(dir, "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, runErr := exec.CommandContext(ctx, program, "--runtime-endpoint", "unix://"+filepath.Join(dir, "s"), "--ginkgo.no-color",
		"--ginkgo.json-report", report, "--ginkgo.skip", strings.Join(patterns, "|")).CombinedOutput()

	data, err := os.ReadFile(report)
	require.NoError(t, err, "%v\n%s", runErr, out)
	var suites []struct{ SpecReports []spec }
	require.NoError(t, json.Unmarshal(data, &suites))
	require.Len(t, suites, 1)
	states := map[string]int{}
	for _, s := range suites[0].SpecReports {
		if s.LeafNodeType != "It" {
			continue
		}
		reason, listed := needProcess[s.name()]
		delete(needProcess, s.name())
		switch {
		case listed:
			states["needs a real process"]++
			t.Logf("not run: %s (%s)", s.name(), reason)
		case s.State == "failed" || s.State == "panicked" || s.State == "interrupted" || s.State == "timedout":
			states[s.State]++
			t.Errorf("%s: %s: %s", s.State, s.name(), s.Failure.Message)
		default:
			states[s.State]++
		}
	}
	t.Logf("specs: %v (skipped: the suite found that runtime or machine lack an optional feature)", states)
	require.Empty(t, needProcess, "testdata/critest.txt names specs that the suite does not have")
	require.Greater(t, states["passed"], 50)
}

// buildCritest returns the program's path. The suite is a test binary, which go install cannot build.
func buildCritest(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/tools/critest")
	require.NoError(t, err)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	t.Logf("building %s from %s", program, critestModule)
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", critestModule).Output()
	require.NoError(t, err, "cannot download %s", critestModule)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-trimpath", "-o", program, "./cmd/critest")
	build.Dir = module.Dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	out, err = build.CombinedOutput()
	require.NoError(t, err, "cannot build critest: %s", out)
	return program
}

func readCritestList(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "critest.txt"))
	require.NoError(t, err)
	reasons := map[string]string{}
	reason := ""
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if comment, found := strings.CutPrefix(text, "#"); found {
			reason = strings.TrimSpace(comment)
		} else if text != "" {
			reasons[text] = reason
		}
	}
	return reasons
}

// critestOptions holds the images that the suite knows something about; the others can be pulled and are like any.
func critestOptions() fakecri.Options {
	const images = "gcr.io/k8s-staging-cri-tools/"
	o := fakecri.Options{
		PullAny: true, LogFiles: true,
		Images: []fakecri.Image{
			{Ref: images + "test-image-tag:test", PullLatency: 50 * time.Millisecond}, // one spec wants a pull to time out
			{Ref: images + "test-image-user-uid", User: "1002"},
			{Ref: images + "test-image-user-username", User: "www-data"},
			{Ref: images + "test-image-user-uid-group", User: "1003:users"},
			{Ref: images + "test-image-user-username-group", User: "www-data:100"},
			{Ref: "registry.k8s.io/e2e-test-images/httpd:2.4.39-4", Command: []string{"sh", "-c", "echo httpd; sleep 1000"}},
		},
	}
	for _, tag := range []string{"1", "2", "3"} {
		o.Images = append(o.Images, fakecri.Image{Ref: images + "test-image-tags:" + tag, ID: "sha256:" + strings.Repeat("7a", 32)})
	}
	for _, registry := range []string{"registry.k8s.io", "k8s.gcr.io"} {
		o.Images = append(o.Images, fakecri.Image{Ref: registry + "/pause:3.9", ID: "sha256:" + strings.Repeat("9b", 32)})
	}
	return o
}
