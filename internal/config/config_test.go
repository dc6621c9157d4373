package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/config"
)

const head = "apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\n"

func load(t *testing.T, text string) (config.Configuration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	l, err := config.Load(config.Sources{File: path, FileRequired: true})
	return l.Config, err
}

// TestDefault: the defaults are valid, documented ones.
func TestDefault(t *testing.T) {
	c := config.Default()
	require.NoError(t, c.Validate())
	require.Equal(t, "/var/lib/nodelet", c.RootDirectory)
	require.Equal(t, "/run/nodelet", c.RunDirectory)
	require.Equal(t, "/etc/nodelet/manifests", c.StaticPodPath)
	require.Equal(t, "/var/log/pods", c.PodLogsDir)
	require.Equal(t, "unix:///run/containerd/containerd.sock", c.ContainerRuntimeEndpoint)
	require.Equal(t, 20*time.Second, c.FileCheckFrequency.Duration)
	require.EqualValues(t, 5, *c.RegistryPullQPS)
	require.EqualValues(t, 10, c.RegistryBurst)
	require.EqualValues(t, 110, c.MaxPods)
	require.Equal(t, 4, c.Pulls())
	require.Equal(t, config.Logging{Format: config.LogText}, c.Logging)
	require.Nil(t, c.Tracing)
	require.False(t, c.EnableProfilingHandler || c.EnableStateDump)
	require.Empty(t, c.MetricsBindAddress)
}

// TestMissingFile: what nobody asked for may be missing.
func TestMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	l, err := config.Load(config.Sources{File: path, Dir: path + ".d"})
	require.NoError(t, err)
	require.Equal(t, config.Default(), l.Config)
	_, err = config.Load(config.Sources{File: path, FileRequired: true})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.EqualError(t, err, "cannot use the configuration: "+path+": cannot read it: no such file or directory")
	_, err = config.Load(config.Sources{Dir: path + ".d", DirRequired: true})
	require.EqualError(t, err, "cannot use the configuration: "+path+".d: cannot read the drop-ins: no such file or directory")
	_, err = config.Load(config.Sources{File: t.TempDir(), FileRequired: true})
	require.ErrorContains(t, err, ": cannot read it: it is not a regular file")
}

// TestFileOverDefaults: what the file says counts, the rest stays as it was.
func TestFileOverDefaults(t *testing.T) {
	c, err := load(t, head+`
nodeName: edge-7
staticPodURL: https://example.com/pods
staticPodURLHeader: {Authorization: ["Bearer x"]}
fileCheckFrequency: 1m30s
registryPullQPS: 0
resolvConf: ""
crashLoopBackOff: {maxContainerRestartPeriod: 30s}
`)
	require.NoError(t, err)
	require.Equal(t, "edge-7", c.NodeName)
	require.Equal(t, 90*time.Second, c.FileCheckFrequency.Duration)
	require.Zero(t, *c.RegistryPullQPS)
	require.Empty(t, *c.ResolvConf)
	require.Equal(t, 30*time.Second, c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration)
	require.Equal(t, []string{"Bearer x"}, c.StaticPodURLHeader["Authorization"])
	require.Equal(t, "/var/lib/nodelet", c.RootDirectory)
}

// TestRefused: what is wrong is named by file, field and reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an empty file", "", []string{"config.yaml:1:1: the file is empty; it must say apiVersion: config.nodelet.dev/v1alpha1 and kind: NodeletConfiguration"}},
		{"another kind", "apiVersion: v1\nkind: Pod\n", []string{`config.yaml:2:7: unknown kind "Pod"; it must say apiVersion: config.nodelet.dev/v1alpha1`}},
		{"no YAML", "apiVersion: [", []string{"config.yaml:1: the file is not YAML: "}},
		{"an unknown field", head + "staticPodPaths: /x\n", []string{`config.yaml:3:1: unknown field "staticPodPaths" (did you mean staticPodPath?)`}},
		{"a field twice", head + "nodeName: a\nnodeName: b\n", []string{`config.yaml:4:1: the field "nodeName" is given twice, first in line 3`}},
		{"a wrong type", head + "registryBurst: many\n", []string{`config.yaml:3:16: registryBurst: "many" is not a whole number`}},
		{"a number without a unit", head + "fileCheckFrequency: 20\n", []string{"config.yaml:3:21: fileCheckFrequency: 20 has no unit; a duration is expected, such as 20s"}},
		{"relative paths", head + "rootDirectory: var\nstaticPodPath: pods\n", []string{`rootDirectory: "var" is not an absolute path`, `staticPodPath: "pods" is not an absolute path`}},
		{"an empty root", head + `rootDirectory: ""` + "\n", []string{`rootDirectory: "" is not an absolute path`}},
		{"no time at all", head + "fileCheckFrequency: 0s\nhttpCheckFrequency: -1s\nruntimeRequestTimeout: 0s\n", []string{
			"fileCheckFrequency: 0s is not a positive duration", "httpCheckFrequency: -1s is not a positive duration", "runtimeRequestTimeout: 0s is not a positive duration",
		}},
		{"a back-off too long", head + "crashLoopBackOff: {maxContainerRestartPeriod: 301s}\n", []string{"crashLoopBackOff.maxContainerRestartPeriod: 5m1s is not between 1s and 300s"}},
		{"a back-off too short", head + "crashLoopBackOff: {maxContainerRestartPeriod: 0s}\n", []string{"crashLoopBackOff.maxContainerRestartPeriod: 0s is not between"}},
		{"no runtime", head + `containerRuntimeEndpoint: ""` + "\n", []string{"containerRuntimeEndpoint: it must not be empty"}},
		{"no pulls", head + "maxParallelImagePulls: 0\n", []string{"maxParallelImagePulls: 0 is less than one"}},
		{"no pods", head + "maxPods: 0\n", []string{"maxPods: 0 is less than one"}},
		{"a format of the log", head + "logging: {format: xml, verbosity: 11}\n", []string{`logging.format: "xml" is neither text nor json`, "logging.verbosity: 11 is not between 0 and 10"}},
		{"metrics for everybody", head + "metricsBindAddress: 0.0.0.0:9101\n", []string{`metricsBindAddress: "0.0.0.0:9101" is not the host:port of a loopback address`}},
		{"metrics without a port", head + "metricsBindAddress: 127.0.0.1\n", []string{`metricsBindAddress: "127.0.0.1" is not the host:port`}},
		{"metrics on any port", head + "metricsBindAddress: 127.0.0.1:0\n", []string{`metricsBindAddress: "127.0.0.1:0" is not the host:port`}},
		{"tracing", head + "tracing: {endpoint: collector, samplingRatePerMillion: 1000001}\n", []string{
			`tracing.endpoint: "collector" is not a host:port`, "tracing.samplingRatePerMillion: 1000001 is not between 0 and 1000000",
		}},
		{"half a credential provider", head + "imageCredentialProviderBinDir: /bin\n", []string{"imageCredentialProviderBinDir: it needs imageCredentialProviderConfigFile too"}},
		{"the other half", head + "imageCredentialProviderConfigFile: /c.yaml\n", []string{"imageCredentialProviderConfigFile: it needs imageCredentialProviderBinDir too"}},
		{"a relative registry file", head + "registryConfigFiles: [/a, b]\n", []string{`registryConfigFiles[1]: "b" is not an absolute path`}},
		{"a name as DNS server", head + "clusterDNS: [10.0.0.10, dns]\n", []string{`clusterDNS[1]: "dns" is not an IP address`}},
		{"no URL", head + "staticPodURL: example.com/pods\n", []string{"staticPodURL: it is not an http:// or https:// URL"}},
		{"a relative resolver", head + "resolvConf: resolv.conf\n", []string{`resolvConf: "resolv.conf" is not an absolute path`}},
		{"a negative rate", head + "registryPullQPS: -1\nregistryBurst: -2\n", []string{"registryPullQPS: -1 is less than zero", "registryBurst: -2 is less than zero"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.text)
			require.ErrorContains(t, err, "config.yaml")
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestSameTextEachTime: several faults are told in one order.
func TestSameTextEachTime(t *testing.T) {
	c := config.Configuration{RootDirectory: "a", RunDirectory: "b", PodLogsDir: "c", StaticPodPath: "d"}
	want := c.Validate().Error()
	for range 50 {
		require.Equal(t, want, c.Validate().Error())
	}
}

// TestNoStaticPods: an agent without a manifest directory is one that only
// fetches.
func TestNoStaticPods(t *testing.T) {
	c, err := load(t, head+`staticPodPath: ""`+"\n")
	require.NoError(t, err)
	require.Empty(t, c.StaticPodPath)
}

// TestPulls: one at a time is stronger than a number.
func TestPulls(t *testing.T) {
	c, err := load(t, head+"serializeImagePulls: true\nmaxParallelImagePulls: 7\n")
	require.NoError(t, err)
	require.Equal(t, 1, c.Pulls())
	c, err = load(t, head+"maxParallelImagePulls: 7\n")
	require.NoError(t, err)
	require.Equal(t, 7, c.Pulls())
	require.Zero(t, (&config.Configuration{}).Pulls())
}
