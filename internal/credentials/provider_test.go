package credentials

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plugins is a directory of programs, with the configuration that names them.
type plugins struct {
	*testing.T
	dir, config string
}

func newPlugins(t *testing.T) plugins {
	t.Helper()
	dir := t.TempDir()
	return plugins{T: t, dir: dir, config: filepath.Join(dir, "providers.yaml")}
}

// program writes a shell script that notes each of its runs.
func (p plugins) program(name, script string) {
	p.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho run >> %s/%s.runs\n%s\n", p.dir, name, script)
	require.NoError(p, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o700))
}

func (p plugins) runs(name string) int {
	text, err := os.ReadFile(filepath.Join(p.dir, name+".runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "run")
}

// answer is a script that prints a response with one entry.
func answer(cacheKeyType, cacheDuration, key, password string) string {
	if cacheDuration != "" {
		cacheDuration = fmt.Sprintf(`"cacheDuration": %q,`, cacheDuration)
	}
	return fmt.Sprintf(`cat <<'EOF'
{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": %q, %s
 "auth": {%q: {"username": "u", "password": %q}}}
EOF`, cacheKeyType, cacheDuration, key, password)
}

func (p plugins) configure(providers string) {
	p.Helper()
	write(p.T, p.config, "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"+providers)
}

const oneProvider = `
- name: helper
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example.com", "r.io/team"]
  defaultCacheDuration: 10m
`

func (p plugins) keyring(files ...string) (*Keyring, *told) {
	w := &told{}
	return New(Options{Files: files, ProviderConfigFile: p.config, ProviderBinDir: p.dir, Warn: w.warn}), w
}

// TestPluginProtocol: the plugin gets the request, its arguments and its
// environment, and its answer counts after the files.
func TestPluginProtocol(t *testing.T) {
	p := newPlugins(t)
	p.program("helper", `cat > "$OUT"; echo "$@" >> "$OUT"`+"\n"+answer("Image", "", "*.example.com", "plugin"))
	p.configure(oneProvider + fmt.Sprintf("  args: [get, now]\n  env: [{name: OUT, value: %s/request}]\n", p.dir))
	file := filepath.Join(p.dir, "config.json")
	write(t, file, auths(t, map[string]string{"a.example.com": "u:file"}))
	k, w := p.keyring(file)
	require.Empty(t, w.take())
	require.Equal(t, []string{"u:file", "u:plugin"}, passwords(t, k, "a.example.com/team/web:1"))
	request, err := os.ReadFile(filepath.Join(p.dir, "request"))
	require.NoError(t, err)
	first, args, _ := strings.Cut(string(request), "}")
	require.JSONEq(t, `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.example.com/team/web"}`, first+"}")
	require.Equal(t, "get now", strings.TrimSpace(args))
	require.Empty(t, passwords(t, k, "r.io/other"), "not matched by matchImages")
	require.Empty(t, passwords(t, k, "r.io/team/x"), "asked, and the answer is for others")
	require.Equal(t, 2, p.runs("helper"))
	found, err := k.Lookup(t.Context(), "b.example.com/x")
	require.NoError(t, err)
	require.Equal(t, `credentials of credential provider helper (entry "*.example.com")`, found[0].String())
}

// TestPluginCache: how long an answer is kept, and for what.
func TestPluginCache(t *testing.T) {
	for _, test := range []struct {
		name, keyType, duration, fallback string
		runs                              int // for a/x twice, a/y, b/x
	}{
		{"image", "Image", "1h", "0s", 3},
		{"registry", "Registry", "1h", "0s", 2},
		{"global", "Global", "1h", "0s", 1},
		{"default", "Global", "", "1h", 1},
		{"no default", "Global", "", "0s", 4},
		{"not at all", "Global", "0s", "1h", 4},
		{"over at once", "Global", "1ns", "1h", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlugins(t)
			p.program("helper", answer(test.keyType, test.duration, "*.example.com", "plugin"))
			p.configure(strings.ReplaceAll(oneProvider, "10m", test.fallback))
			k, _ := p.keyring()
			for _, image := range []string{"a.example.com/x", "a.example.com/x", "a.example.com/y", "b.example.com/x"} {
				require.Equal(t, []string{"u:plugin"}, passwords(t, k, image))
			}
			require.Equal(t, test.runs, p.runs("helper"))
		})
	}
}

// TestPluginCacheIsBounded keeps a node that meets many images from growing.
func TestPluginCacheIsBounded(t *testing.T) {
	p := &provider{cache: map[string]cached{}}
	now := time.Now()
	for i := range maxCached + 5 {
		p.keep(strconv.Itoa(i), newRing(nil), now, time.Hour)
	}
	require.LessOrEqual(t, len(p.cache), maxCached)
	_, ok := p.cached(strconv.Itoa(maxCached+4), now)
	require.True(t, ok)
	p.keep("last", newRing(nil), now.Add(2*time.Hour), time.Hour)
	require.Len(t, p.cache, 1, "what is over goes")
}

// TestPluginRunsOnce: many want the same credentials at one time. The first one
// gives up and harms nobody.
func TestPluginRunsOnce(t *testing.T) {
	p := newPlugins(t)
	gate := filepath.Join(p.dir, "gate")
	p.program("helper", fmt.Sprintf("while [ ! -e %s ]; do sleep 0.02; done\n", gate)+answer("Image", "1h", "a.example.com", "plugin"))
	p.configure(oneProvider)
	k, _ := p.keyring()
	impatient, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var first error
	all.Go(func() { _, first = k.Lookup(impatient, "a.example.com/x") })
	require.Eventually(t, func() bool { return p.runs("helper") == 1 }, time.Minute, time.Millisecond)
	results := make([][]Auth, 5)
	for i := range results {
		all.Go(func() {
			found, err := k.Lookup(t.Context(), "a.example.com/x")
			require.NoError(t, err)
			results[i] = found
		})
	}
	giveUp()
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	all.Wait()
	require.ErrorIs(t, first, context.Canceled)
	for _, found := range results {
		require.Len(t, found, 1)
		require.Equal(t, "plugin", found[0].Password)
	}
	require.LessOrEqual(t, p.runs("helper"), 2)
}

// TestPluginFailures: each says which plugin failed and how, and no secret. What
// files and other plugins have is returned all the same.
func TestPluginFailures(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"exit", "echo the vault is sealed >&2; exit 3", "for a.example.com/x: exit status 3: the vault is sealed"},
		{"no JSON", "echo hunter2", "it is not a CredentialProviderResponse in JSON"},
		{"wrong type", `echo '{"auth": "hunter2"}'`, "it is not a CredentialProviderResponse in JSON"},
		{"wrong version", `echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1", "kind": "CredentialProviderResponse", "auth": {"a": {"password": "hunter2"}}}'`, "must be a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1, and it is"},
		{"wrong key type", answer("Planet", "1h", "a.example.com", "hunter2"), `cacheKeyType: "Planet" is not Image, Registry or Global`},
		{"negative", answer("Image", "-1h", "a.example.com", "hunter2"), "cacheDuration: -1h0m0s is negative"},
		{"flood", "head -c 2000000 /dev/zero", "it is larger than 1048576 bytes"},
		{"too slow", "echo thinking >&2; exec sleep 1000", "it did not answer within 300ms: thinking"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlugins(t)
			p.program("helper", test.script)
			p.program("other", answer("Image", "", "a.example.com", "other"))
			require.NoError(t, os.WriteFile(p.config, []byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"+
				oneProvider+strings.ReplaceAll(oneProvider, "helper", "other")), 0o600))
			k, _ := p.keyring()
			k.latest.Load().providers.list[0].timeout = 300 * time.Millisecond
			if test.name != "too slow" {
				k.latest.Load().providers.list[0].timeout = time.Minute
			}
			found, err := k.Lookup(t.Context(), "a.example.com/x")
			require.ErrorContains(t, err, "credential provider helper")
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "hunter2")
			require.Len(t, found, 1)
			require.Equal(t, "other", found[0].Password)
		})
	}
}

// TestProviderConfig: every fault is named with its field, at the start.
func TestProviderConfig(t *testing.T) {
	head := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"
	for _, test := range []struct{ name, text, want string }{
		{"no providers", head + "providers: []\n", "providers: Required value"},
		{"unknown field", head + "providers:\n" + oneProvider + "  arguments: []\n", `unknown field "providers[0].arguments"`},
		{"kind", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: CredentialProviderConfig\nproviders: []\n", "it must be a CredentialProviderConfig of kubelet.config.k8s.io/v1"},
		{"no YAML", "{", "cannot use the configuration of credential providers"},
		{"name", head + "providers:\n" + strings.ReplaceAll(oneProvider, "name: helper", "name: ../helper"), `providers[0].name: Invalid value: "../helper"`},
		{"no name", head + "providers:\n" + strings.ReplaceAll(oneProvider, "name: helper", "name: ''"), "providers[0].name: Required value"},
		{"twice", head + "providers:\n" + oneProvider + oneProvider, `providers[1].name: Duplicate value: "helper"`},
		{"version", head + "providers:\n" + strings.ReplaceAll(oneProvider, "k8s.io/v1\n", "k8s.io/v1alpha1\n"), `providers[0].apiVersion: Unsupported value: "credentialprovider.kubelet.k8s.io/v1alpha1"`},
		{"match", head + "providers:\n" + strings.ReplaceAll(oneProvider, "r.io/team", "%zz"), `providers[0].matchImages[1]: Invalid value: "%zz"`},
		{"no match", head + "providers:\n" + strings.ReplaceAll(oneProvider, `["*.example.com", "r.io/team"]`, "[]"), "providers[0].matchImages: Required value"},
		{"no duration", head + "providers:\n" + strings.ReplaceAll(oneProvider, "  defaultCacheDuration: 10m\n", ""), "providers[0].defaultCacheDuration: Required value"},
		{"duration", head + "providers:\n" + strings.ReplaceAll(oneProvider, "10m", "-1s"), `providers[0].defaultCacheDuration: Invalid value: "-1s"`},
		{"token", head + "providers:\n" + oneProvider + "  tokenAttributes: {serviceAccountTokenAudience: x}\n", "providers[0].tokenAttributes: Forbidden: this node has no service accounts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlugins(t)
			p.program("helper", "")
			write(t, p.config, test.text)
			k, w := p.keyring()
			warnings := w.take()
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], ReasonProviders+": cannot use the configuration of credential providers "+p.config)
			require.Contains(t, warnings[0], test.want)
			_, err := k.Lookup(t.Context(), "a.example.com/x")
			require.ErrorContains(t, err, test.want, "pulls tell of it too")
		})
	}
}

// TestProvidersChange: a mistake is told, the last good version stays in use,
// and a correction needs no restart.
func TestProvidersChange(t *testing.T) {
	p := newPlugins(t)
	k, w := p.keyring()
	require.Contains(t, w.take()[0], "cannot read the configuration of credential providers")
	p.configure(oneProvider)
	_, err := k.Lookup(t.Context(), "a.example.com/x")
	require.ErrorContains(t, err, "cannot ask credential provider helper")
	warnings := w.take()
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "cannot run credential provider helper at "+p.dir+"/helper: ")
	p.program("helper", answer("Image", "", "a.example.com", "plugin"))
	require.Equal(t, []string{"u:plugin"}, passwords(t, k, "a.example.com/x"))
	p.configure("- {}\n")
	found, err := k.Lookup(t.Context(), "a.example.com/x")
	require.ErrorContains(t, err, "providers[0].name")
	require.Len(t, found, 1)
	require.Len(t, w.take(), 1)
	p.configure(oneProvider)
	require.Equal(t, []string{"u:plugin"}, passwords(t, k, "a.example.com/x"))
}
