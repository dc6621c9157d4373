package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/runtime"
)

// TestRegistryFiles: where credentials are looked for when nobody says so.
func TestRegistryFiles(t *testing.T) {
	c := config.Default()
	require.Equal(t, []string{"/var/lib/nodelet/config.json", "/root/.docker/config.json"}, registryFiles(c))
	c.RegistryConfigFiles = []string{"/etc/a.json", "/etc/b.json"}
	require.Equal(t, c.RegistryConfigFiles, registryFiles(c))
}

// TestImageSources: each part of a credential reaches the runtime, what is wrong
// is told, and without a socket nothing is imported or waited for.
func TestImageSources(t *testing.T) {
	c := config.Default()
	c.RootDirectory = t.TempDir()
	file := filepath.Join(c.RootDirectory, "config.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"auths": {
		"a.example.com": {"username": "u", "password": "p"}, "b.example.com": {"identitytoken": "i"}, "c.example.com": {"registrytoken": "r"}}}`), 0o600))
	c.ImageCredentialProviderConfigFile, c.ImageCredentialProviderBinDir = filepath.Join(c.RootDirectory, "none.yaml"), "/bin"
	var told []string
	s := &imageSources{}
	s.open(c, func(kind, reason, message string) { told = append(told, kind+" "+reason+": "+message) })
	require.Len(t, told, 1)
	require.Contains(t, told[0], "Warning CredentialProviderInvalid: cannot read the configuration of credential providers")
	for image, want := range map[string]runtime.Auth{
		"a.example.com/web:1": {Username: "u", Password: "p", Source: file + ` (entry "a.example.com")`},
		"b.example.com/web:1": {IdentityToken: "i", Source: file + ` (entry "b.example.com")`},
		"c.example.com/web:1": {RegistryToken: "r", Source: file + ` (entry "c.example.com")`},
	} {
		found, err := s.lookup(t.Context(), image)
		require.ErrorContains(t, err, "none.yaml")
		require.Equal(t, []runtime.Auth{want}, found)
	}
	require.False(t, s.arriving(t.Context()))
	require.NoError(t, s.run(t.Context()))
}
