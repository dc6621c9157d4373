// Package arch holds the code against the rules that are written down.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "nodelet.dev/nodelet/"

var quoted = regexp.MustCompile("`([^`]+)`")

// table reads the permissions from internal/README.md.
func table(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	allowed := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		name := quoted.FindStringSubmatch(cells[1])[1]
		allowed[name] = []string{}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			allowed[name] = append(allowed[name], m[1])
		}
	}
	require.NotEmpty(t, allowed, "the table was not found")
	return allowed
}

// imports asks the go command what every package imports of ours, tests left
// out: they may use what they like.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,GoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		name := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) == 0 {
			continue
		}
		found[name] = []string{}
		for _, i := range p.Imports {
			if own, ok := strings.CutPrefix(i, module); ok {
				found[name] = append(found[name], own)
			}
		}
	}
}

func TestImportTable(t *testing.T) {
	allowed, found := table(t), imports(t)
	for name, list := range found {
		permitted, known := allowed[name]
		if !known {
			t.Errorf("%s is not in the table of internal/README.md", name)
			continue
		}
		for _, i := range list {
			if !slices.Contains(permitted, i) {
				t.Errorf("%s imports %s, which the table does not permit", name, i)
			}
		}
		for _, i := range permitted {
			if !slices.Contains(list, i) {
				t.Errorf("%s does not import %s, which the table permits", name, i)
			}
		}
	}
	for name := range allowed {
		if _, exists := found[name]; !exists {
			t.Errorf("the table has %s, which does not exist", name)
		}
	}
}

// TestLintersAreEnabled finds linters that are configured and never run.
func TestLintersAreEnabled(t *testing.T) {
	text, err := os.ReadFile("../../.golangci.yml")
	require.NoError(t, err)
	_, settings, ok := strings.Cut(string(text), "\n  settings:\n")
	require.True(t, ok)
	settings, _, _ = strings.Cut(settings, "\n  exclusions:")
	enabled := string(text[:strings.Index(string(text), "\n  settings:")])
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z]+):`).FindAllStringSubmatch(settings, -1) {
		if !strings.Contains(enabled, "\n    - "+m[1]) {
			t.Errorf("%s has settings in .golangci.yml and is not enabled", m[1])
		}
	}
}

// TestFilesThatProseNames checks that paths in the prose exist.
func TestFilesThatProseNames(t *testing.T) {
	path := regexp.MustCompile("`((?:cmd|internal|runtime|pleg|podworkers|testdata)/[A-Za-z0-9_./-]+)`")
	for _, file := range []string{"../README.md", "../../README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range path.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat("../../" + m[1])
			require.NoError(t, err, "%s names %s", file, m[1])
		}
	}
}
