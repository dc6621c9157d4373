package credentials

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told collects warnings.
type told struct {
	mu   sync.Mutex
	list []string
}

func (w *told) warn(reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, reason+": "+message)
}

func (w *told) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

// version makes each write of a file a version of its own, whatever the clock
// of the file system.
var version = time.Now()

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	version = version.Add(time.Second)
	require.NoError(t, os.Chtimes(path, version, version))
}

func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// auths renders a docker config file from registries and "user:password".
func auths(t *testing.T, entries map[string]string) string {
	t.Helper()
	c := map[string]any{}
	for key, value := range entries {
		user, password, _ := strings.Cut(value, ":")
		c[key] = map[string]string{"auth": basic(user, password)}
	}
	text, err := json.Marshal(map[string]any{"auths": c})
	require.NoError(t, err)
	return string(text)
}

func passwords(t *testing.T, k *Keyring, image string) []string {
	t.Helper()
	found, err := k.Lookup(t.Context(), image)
	require.NoError(t, err)
	var out []string
	for _, a := range found {
		out = append(out, a.Username+":"+a.Password)
	}
	return out
}

// TestMatching: IMG-11. Which entries count for an image, and in which order.
func TestMatching(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	write(t, file, auths(t, map[string]string{
		"registry.example.com":           "u:host",
		"registry.example.com/team":      "u:team",
		"registry.example.com/team/shop": "u:shop",
		"registry.example.com:5000":      "u:port",
		"*.example.org":                  "u:glob",
		"a.example.org":                  "u:exact",
		"https://scheme.example.net/v1/": "u:v1",
		"http://plain.example.net/v2/":   "u:v2",
		"https://index.docker.io/v1/":    "u:hub",
	}))
	k := New(Options{Files: []string{file}})
	for _, test := range []struct {
		image string
		want  []string
	}{
		{"registry.example.com/web", []string{"u:host"}},
		{"registry.example.com/web:1", []string{"u:host"}},
		{"registry.example.com/team/web@sha256:" + strings.Repeat("a", 64), []string{"u:team", "u:host"}},
		{"registry.example.com/team/shop", []string{"u:shop", "u:team", "u:host"}},
		{"registry.example.com/teams/x", []string{"u:team", "u:host"}}, // a prefix of the text, as upstream
		{"registry.example.com:5000/web", []string{"u:port"}},
		{"registry.example.com:5001/web", nil},
		{"a.example.org/web", []string{"u:exact", "u:glob"}},
		{"b.example.org/web", []string{"u:glob"}},
		{"a.b.example.org/web", nil},
		{"scheme.example.net/web", []string{"u:v1"}},
		{"plain.example.net/web", []string{"u:v2"}},
		{"busybox", []string{"u:hub"}},
		{"docker.io/library/busybox:1", []string{"u:hub"}},
		{"other.example.net/web", nil},
	} {
		require.Equal(t, test.want, passwords(t, k, test.image), test.image)
	}
	_, err := k.Lookup(t.Context(), "Not//valid")
	require.ErrorContains(t, err, `image "Not//valid"`)
}

// TestFields: the ways to write an entry.
func TestFields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	write(t, file, fmt.Sprintf(`{"auths": {
		"padded.io": {"auth": %q},
		"raw.io": {"auth": %q},
		"plain.io": {"username": "u", "password": "p"},
		"identity.io": {"identitytoken": "id"},
		"registry.io": {"registrytoken": "rt"},
		"colon.io": {"auth": %q},
		"empty.io": {}}}`, basic("u", "p"), strings.TrimRight(basic("u", "p"), "="), basic("u", "p:q")))
	k := New(Options{Files: []string{file}})
	for image, want := range map[string][]Auth{
		"padded.io/a":   {{Username: "u", Password: "p"}},
		"raw.io/a":      {{Username: "u", Password: "p"}},
		"plain.io/a":    {{Username: "u", Password: "p"}},
		"identity.io/a": {{IdentityToken: "id"}},
		"registry.io/a": {{RegistryToken: "rt"}},
		"colon.io/a":    {{Username: "u", Password: "p:q"}},
		"empty.io/a":    nil,
	} {
		found, err := k.Lookup(t.Context(), image)
		require.NoError(t, err)
		for i := range found {
			registry, _, _ := strings.Cut(image, "/")
			require.Equal(t, fmt.Sprintf("%s (entry %q)", file, registry), found[i].Source)
			found[i].Source = ""
		}
		require.Equal(t, want, found, image)
	}
}

// TestFilesChange: several files count in their order, each is looked at again,
// and what is wrong with one is told once and harms no other.
func TestFilesChange(t *testing.T) {
	dir := t.TempDir()
	first, second, third := filepath.Join(dir, "1.json"), filepath.Join(dir, "2.json"), filepath.Join(dir, "3.json")
	write(t, first, auths(t, map[string]string{"r.io": "u:one"}))
	write(t, second, `{"auths": {`)
	var w told
	k := New(Options{Files: []string{first, second, third}, Warn: w.warn})
	problems := w.take()
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], ReasonCredentials+": cannot read the registry credentials of "+second)
	for range 3 {
		require.Equal(t, []string{"u:one"}, passwords(t, k, "r.io/a"))
	}
	require.Empty(t, w.take(), "told once")

	write(t, second, auths(t, map[string]string{"r.io": "u:two"}))
	write(t, third, auths(t, map[string]string{"r.io/a": "u:three"}))
	require.Equal(t, []string{"u:three", "u:one", "u:two"}, passwords(t, k, "r.io/a"))
	require.Empty(t, w.take())

	write(t, second, "{")
	require.Equal(t, []string{"u:three", "u:one", "u:two"}, passwords(t, k, "r.io/a"), "somebody may be writing it")
	require.Contains(t, w.take()[0], "stay in use")
	require.NoError(t, os.Remove(second))
	require.Equal(t, []string{"u:three", "u:one"}, passwords(t, k, "r.io/a"))
	require.Empty(t, w.take())

	require.NoError(t, os.Chmod(first, 0o644))
	require.Equal(t, []string{"u:three", "u:one"}, passwords(t, k, "r.io/a"))
	require.Equal(t, []string{fmt.Sprintf("%s: the registry credentials of %s can be read by others (mode 0644): chmod 600 %s", ReasonMode, first, first)}, w.take())
	require.Equal(t, []string{"u:three", "u:one"}, passwords(t, k, "r.io/a"))
	require.Empty(t, w.take())
}

// TestBadEntries: an entry that cannot be used takes no other away, and its
// secret is not told.
func TestBadEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	write(t, file, fmt.Sprintf(`{"credsStore": "desktop", "credHelpers": {"h.io": "x"}, "auths": {
		"good.io": {"auth": %q},
		"number.io": {"auth": 7},
		"base.io": {"auth": "hunter2!"},
		"colon.io": {"auth": %q},
		"ho st.io": {"auth": %q}}}`, basic("u", "p"), base64.StdEncoding.EncodeToString([]byte("hunter2")), basic("u", "hunter2")))
	var w told
	k := New(Options{Files: []string{file}, Warn: w.warn})
	text := strings.Join(w.take(), "\n")
	require.Contains(t, text, "cannot use credsStore and credHelpers of "+file)
	require.Contains(t, text, `cannot use auths["base.io"] of `+file+": auth: it is not base64")
	require.Contains(t, text, `cannot use auths["colon.io"] of `+file+": auth: it is not the base64 of username:password")
	require.Contains(t, text, `cannot use auths["number.io"] of `+file)
	require.Contains(t, text, `cannot use auths["ho st.io"] of `+file+": the key is not a registry")
	require.NotContains(t, text, "hunter2")
	require.Equal(t, []string{"u:p"}, passwords(t, k, "good.io/a"))
}

// TestSecretsDoNotPrint covers the ways in which values reach logs.
func TestSecretsDoNotPrint(t *testing.T) {
	a := Auth{Username: "u", Password: "hunter2", IdentityToken: "hunter2", RegistryToken: "hunter2", Source: "a file"}
	text, err := json.Marshal(map[string]any{"auth": a, "pointer": &a})
	require.NoError(t, err)
	for _, s := range []string{string(text), fmt.Sprintf("%v %+v %#v %s %q", a, a, a, a, a), fmt.Sprintf("%v %+v %#v", &a, []Auth{a}, []*Auth{&a})} {
		require.NotContains(t, s, "hunter2")
	}
	require.Contains(t, string(text), "a file")
}

// TestConcurrentLookups is for the race detector: files change while they are
// looked up, and each version is told of once.
func TestConcurrentLookups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	write(t, file, "{")
	var w told
	k := New(Options{Files: []string{file}, Warn: w.warn})
	require.Len(t, w.take(), 1)
	write(t, file, "[")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				_, err := k.Lookup(t.Context(), "r.io/a")
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.Len(t, w.take(), 1)
}
