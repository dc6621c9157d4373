package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/config"
)

// FuzzLoad: no text makes the decoder panic; what it accepts means the same when
// it is written out and read again; what it refuses lies within the text.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		"", head, kubeletHead, viewed, head + "nodeName: null\nstaticPodURLHeader: {\"a.b\": [c], \"\": []}\n",
		head + "logging: &a {format: text}\ntracing: *a\n", head + "<<: {a: b}\n? [a]\n: b\n", head + "a: !!binary x\nmaxPods: 0x10\n",
		kubeletHead + "registerWithTaints: [{key: a}, b]\nevictionHard: {a: b}\n", "\ufeff---\n" + head + "...\n", head + "clusterDNS: [\n",
	} {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s := config.Sources{File: path, FileRequired: true}
		l, err := config.Load(s)
		if err != nil {
			requirePlaces(t, text, err)
			return
		}
		asJSON, err := json.Marshal(l.Values(true))
		require.NoError(t, err)
		asYAML, err := l.YAML(true, true)
		require.NoError(t, err)
		for _, written := range [][]byte{asJSON, asYAML} {
			require.NoError(t, os.WriteFile(path, written, 0o600))
			again, err := config.Load(s)
			require.NoError(t, err, "%s", written)
			require.Equal(t, l.Config, again.Config)
		}
	})
}

// requirePlaces checks that all faults lie within a text.
func requirePlaces(t *testing.T, text string, err error) {
	t.Helper()
	faults, ok := errors.AsType[config.Errors](err)
	require.True(t, ok, "%v", err)
	require.NotEmpty(t, faults)
	// YAML has more line breaks than others.
	lines := strings.FieldsFunc(strings.NewReplacer("\n", "x\n", "\r", "x\n", "\u0085", "x\n", "\u2028", "x\n", "\u2029", "x\n").Replace(text+"\n"),
		func(r rune) bool { return r == '\n' })
	for _, one := range faults {
		require.Equal(t, config.FromFile, one.Origin.Kind)
		require.Positive(t, one.Origin.Line)
		require.LessOrEqual(t, one.Origin.Line, len(lines), "%v", one)
		require.LessOrEqual(t, one.Origin.Column, len(lines[one.Origin.Line-1])+1, "%v", one)
	}
}
