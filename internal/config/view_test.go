package config_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodelet.dev/nodelet/internal/config"
)

const viewed = head + `nodeName: edge # a comment
clusterDNS: [10.0.0.1, 10.0.0.2]
registryConfigFiles: []
staticPodURL: https://user:secret@example.com/pods
staticPodURLHeader:
  Authorization: ["Bearer x"]
tracing: {endpoint: "localhost:4317", samplingRatePerMillion: 100}
enableStateDump: true
`

// TestView: the merged result is a configuration, with an origin in each line,
// and without secrets unless they are asked for.
func TestView(t *testing.T) {
	dir := place(t, map[string]string{"c.yaml": viewed})
	l, err := config.Load(config.Sources{File: filepath.Join(dir, "c.yaml"), Flags: map[string]string{"v": "3"}})
	require.NoError(t, err)
	text, err := l.YAML(false, true)
	require.NoError(t, err)
	require.Equal(t, `apiVersion: config.nodelet.dev/v1alpha1
kind: NodeletConfiguration
rootDirectory: /var/lib/nodelet # default
runDirectory: /run/nodelet # default
nodeName: edge # c.yaml:3
staticPodPath: /etc/nodelet/manifests # default
staticPodURL: https://user:xxxxx@example.com/pods # c.yaml:6
staticPodURLHeader:
  Authorization: # c.yaml:8
    - REDACTED # c.yaml:8
fileCheckFrequency: 20s # default
httpCheckFrequency: 20s # default
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock # default
runtimeRequestTimeout: 2m0s # default
podLogsDir: /var/log/pods # default
resolvConf: /etc/resolv.conf # default
clusterDNS: # c.yaml:4
  - 10.0.0.1 # c.yaml:4
  - 10.0.0.2 # c.yaml:4
clusterDomain: cluster.local # default
maxPods: 110 # default
maxParallelImagePulls: 4 # default
registryPullQPS: 5 # default
registryBurst: 10 # default
registryConfigFiles: [] # c.yaml:5
logging:
  format: text # default
  verbosity: 3 # flag --v
tracing:
  endpoint: localhost:4317 # c.yaml:9
  samplingRatePerMillion: 100 # c.yaml:9
enableStateDump: true # c.yaml:10
`, shorten(string(text), dir))

	raw, err := l.YAML(true, false)
	require.NoError(t, err)
	again, err := load(t, string(raw))
	require.NoError(t, err)
	require.Equal(t, l.Config, again)
	asJSON, err := json.Marshal(l.Values(true))
	require.NoError(t, err)
	again, err = load(t, string(asJSON))
	require.NoError(t, err)
	require.Equal(t, l.Config, again)

	fields := l.Fields(false)
	require.Equal(t, config.Field{Field: "rootDirectory", Value: "/var/lib/nodelet", Origin: "default"}, fields[0])
	require.Contains(t, fields, config.Field{Field: "logging.verbosity", Value: int32(3), Origin: "flag --v"})
	require.Contains(t, fields, config.Field{Field: "staticPodURLHeader.Authorization", Value: []any{"REDACTED"}, Origin: dir + "/c.yaml:8"})
}

// TestChanges: what differs is named by field, secrets are not shown, and it is
// said what takes a restart.
func TestChanges(t *testing.T) {
	before, err := load(t, viewed)
	require.NoError(t, err)
	after, err := load(t, head+`nodeName: edge
clusterDNS: [10.0.0.1]
staticPodURL: https://user:other@example.com/pods
staticPodURLHeader: {Authorization: ["Bearer y"]}
logging: {verbosity: 2}
crashLoopBackOff: {maxContainerRestartPeriod: 10s}
`)
	require.NoError(t, err)
	changes, err := config.Changes(before, after)
	require.NoError(t, err)
	require.Equal(t, []config.Change{
		{Field: "clusterDNS", Old: `["10.0.0.1","10.0.0.2"]`, New: `["10.0.0.1"]`},
		{Field: "crashLoopBackOff.maxContainerRestartPeriod", New: `"10s"`, Live: true},
		{Field: "enableStateDump", Old: "true"},
		{Field: "logging.verbosity", New: "2", Live: true},
		{Field: "staticPodURL", Old: "REDACTED", New: "REDACTED"},
		{Field: "staticPodURLHeader", Old: "REDACTED", New: "REDACTED", Live: true},
		{Field: "tracing.endpoint", Old: `"localhost:4317"`},
		{Field: "tracing.samplingRatePerMillion", Old: "100"},
	}, changes)
	changes, err = config.Changes(before, before)
	require.NoError(t, err)
	require.Empty(t, changes)
}

// TestApplied has the fields that are called live, and no other.
func TestApplied(t *testing.T) {
	before, after := config.Default(), config.Default()
	after.RootDirectory, after.RunDirectory, after.NodeName, after.StaticPodPath, after.StaticPodURL = "/a", "/b", "c", "/d", "http://e/"
	after.StaticPodURLHeader = map[string][]string{"f": {"g"}}
	for i, d := range []*metav1.Duration{&after.FileCheckFrequency, &after.HTTPCheckFrequency, &after.RuntimeRequestTimeout} {
		d.Duration = time.Duration(i+1) * time.Second
	}
	after.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
	after.ContainerRuntimeEndpoint, after.ImageServiceEndpoint, after.PodLogsDir = "/h", "/i", "/j"
	after.ResolvConf, after.ClusterDNS, after.ClusterDomain = new("/k"), []string{"10.0.0.1"}, "l"
	after.MaxPods, after.SerializeImagePulls, after.MaxParallelImagePulls = 1, true, new(int32(2))
	after.RegistryPullQPS, after.RegistryBurst = new(int32(3)), 4
	after.ImageCredentialProviderConfigFile, after.ImageCredentialProviderBinDir, after.RegistryConfigFiles = "/m", "/n", []string{"/o"}
	after.Logging, after.Tracing = config.Logging{Format: "json", Verbosity: 5}, &config.Tracing{Endpoint: "p:1", SamplingRatePerMillion: new(int32(6))}
	after.MetricsBindAddress, after.EnableProfilingHandler, after.EnableStateDump = "127.0.0.1:1", true, true

	all, err := config.Changes(before, after)
	require.NoError(t, err)
	changed := map[string]bool{} // whether it is live
	for _, c := range all {
		changed[c.Field] = c.Live
	}
	kinds := reflect.TypeFor[config.Configuration]()
	for f := range kinds.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		found := name == "" || slices.ContainsFunc(all, func(c config.Change) bool { return c.Field == name || strings.HasPrefix(c.Field, name+".") })
		require.True(t, found, "a new field %s must be changed here", name)
	}
	applied, err := config.Changes(before, config.Applied(before, after))
	require.NoError(t, err)
	live := map[string]bool{}
	for _, c := range applied {
		live[c.Field] = true
	}
	for field, is := range changed {
		require.Equal(t, is, live[field], field)
	}
	rest, err := config.Changes(config.Applied(before, after), after)
	require.NoError(t, err)
	require.Len(t, rest, len(all)-len(applied))
}
