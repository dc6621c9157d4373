package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/config"
)

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// place writes files below a directory.
func place(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// shorten makes a text independent of where its files are.
func shorten(text, dir string) string { return strings.ReplaceAll(text, dir+"/", "") }

// TestOrigins: of each layer the stronger one counts, and is named.
func TestOrigins(t *testing.T) {
	layers := []struct {
		origin string
		add    func(s *config.Sources, dir string)
	}{
		{"default", func(*config.Sources, string) {}},
		{"config.yaml:3", func(s *config.Sources, dir string) { s.File = filepath.Join(dir, "config.yaml") }},
		{"drop-in one.d/10.yaml:4", func(s *config.Sources, dir string) { s.Dir = filepath.Join(dir, "one.d") }},
		{"drop-in two.d/20.yaml:3", func(s *config.Sources, dir string) { s.Dir = filepath.Join(dir, "two.d") }},
		{"environment CONTAINER_RUNTIME_ENDPOINT", func(s *config.Sources, _ string) {
			s.Environ = append(s.Environ, "CONTAINER_RUNTIME_ENDPOINT=unix:///crictl")
		}},
		{"environment NODELET_RUNTIME_ENDPOINT", func(s *config.Sources, _ string) {
			s.Environ = append(s.Environ, "NODELET_RUNTIME_ENDPOINT=unix:///env")
		}},
		{"flag --runtime-endpoint", func(s *config.Sources, _ string) {
			s.Flags = map[string]string{"runtime-endpoint": "unix:///flag"}
		}},
	}
	values := []string{"unix:///run/containerd/containerd.sock", "unix:///file", "unix:///ten", "unix:///twenty", "unix:///crictl", "unix:///env", "unix:///flag"}
	ten := head + "# of the ten\ncontainerRuntimeEndpoint: unix:///ten\n"
	dir := place(t, map[string]string{
		"config.yaml":     head + "containerRuntimeEndpoint: unix:///file\n",
		"one.d/10.yaml":   ten,
		"one.d/20.yml":    "neither read nor minded",
		"one.d/.30.yaml":  "neither",
		"one.d/40.yaml.~": "neither",
		"two.d/10.yaml":   ten,
		"two.d/20.yaml":   head + "containerRuntimeEndpoint: unix:///twenty\n",
	})
	var s config.Sources
	for i, layer := range layers {
		layer.add(&s, dir)
		l, err := config.Load(s)
		require.NoError(t, err)
		require.Equal(t, layer.origin, shorten(l.Origins["containerRuntimeEndpoint"].String(), dir))
		require.Equal(t, values[i], l.Config.ContainerRuntimeEndpoint)
		require.Equal(t, "default", l.Origins["podLogsDir"].String())
		require.Empty(t, l.Warnings)
	}
}

// TestEverySetting: each flag and its variable set their field, the flag over
// the variable.
func TestEverySetting(t *testing.T) {
	texts := map[string][2]string{"logging.format": {"json", "text"}, "logging.verbosity": {"3", "4"}, "staticPodURL": {"http://a/", "http://b/"}}
	for _, set := range config.Settings() {
		pair, ok := texts[set.Field]
		if !ok {
			pair = [2]string{"/one", "/two"}
		}
		value := func(l config.Loaded) any {
			for _, f := range l.Fields(true) {
				if f.Field == set.Field {
					return f.Value
				}
			}
			return nil
		}
		s := config.Sources{Environ: []string{config.Variable(set.Flag) + "=" + pair[0]}}
		l, err := config.Load(s)
		require.NoError(t, err, set.Flag)
		require.EqualValues(t, pair[0], toText(value(l)), set.Flag)
		require.Equal(t, config.Origin{Kind: config.FromEnvironment, Name: config.Variable(set.Flag)}, l.Origins[set.Field])
		s.Flags = map[string]string{set.Flag: pair[1]}
		l, err = config.Load(s)
		require.NoError(t, err, set.Flag)
		require.EqualValues(t, pair[1], toText(value(l)), set.Flag)
		require.Equal(t, "flag --"+set.Flag, l.Origins[set.Field].String())
	}
}

func toText(v any) string {
	if n, ok := v.(int32); ok {
		return string('0' + n)
	}
	return v.(string)
}

// TestMerge: objects and mappings field by field, lists as a whole, and null
// takes back.
func TestMerge(t *testing.T) {
	dir := place(t, map[string]string{
		"config.yaml": head + `nodeName: a
clusterDNS: [10.0.0.1, 10.0.0.2]
staticPodURLHeader: {A: [a], B: [b]}
logging: {format: json, verbosity: 2}
maxPods: 20
registryPullQPS: 7
tracing: {endpoint: "collector:4317"}
`,
		"config.d/1.yaml": head + `nodeName: null
clusterDNS:
- 10.0.0.3
staticPodURLHeader: {B: [c], C: [], A: null}
logging:
  verbosity: 5
maxPods: ~
registryPullQPS: 0
tracing: null
`,
	})
	l, err := config.Load(config.Sources{File: filepath.Join(dir, "config.yaml"), Dir: filepath.Join(dir, "config.d")})
	require.NoError(t, err)
	c := l.Config
	require.Empty(t, c.NodeName)
	require.Equal(t, []string{"10.0.0.3"}, c.ClusterDNS)
	require.Equal(t, map[string][]string{"B": {"c"}, "C": {}}, c.StaticPodURLHeader)
	require.Equal(t, config.Logging{Format: "json", Verbosity: 5}, c.Logging)
	require.EqualValues(t, 110, c.MaxPods)
	require.Zero(t, *c.RegistryPullQPS)
	require.Nil(t, c.Tracing)
	got := map[string]string{}
	for field, origin := range l.Origins {
		if origin.Kind != config.FromDefault {
			got[field] = shorten(origin.String(), dir)
		}
	}
	require.Equal(t, map[string]string{
		"clusterDNS": "drop-in config.d/1.yaml:4", "staticPodURLHeader.B": "drop-in config.d/1.yaml:6", "staticPodURLHeader.C": "drop-in config.d/1.yaml:6",
		"logging.format": "config.yaml:6", "logging.verbosity": "drop-in config.d/1.yaml:8", "registryPullQPS": "drop-in config.d/1.yaml:10",
	}, got)
}

// TestAllFaults: each one is told, with its place, of all layers.
func TestAllFaults(t *testing.T) {
	dir := place(t, map[string]string{
		"config.yaml": head + `staticPodPth: /a
logging: {formt: json, verbosity: "3", format: [text]}
clusterDNS: 10.0.0.1
staticPodURLHeader: {Authorization: Bearer x}
nodeName: 7
serializeImagePulls: yes
maxPods: 3000000000
evictionHard: {}
rootDirectory: &root /a
runDirectory: *root
registryConfigFiles: [/a, null]
<<: {a: b}
? [a, b]
: c
registryBurst: 1.5
crashLoopBackOff: {maxContainerRestartPeriod: soon}
`,
		"config.d/a.yaml": "nodeName: x\n",
		"config.d/b.yaml": head + "logging: 5\nzzz: 1\n",
		"config.d/c.yaml": strings.Replace(head, "v1alpha1", "v2", 1),
	})
	_, err := config.Load(config.Sources{
		File: filepath.Join(dir, "config.yaml"), Dir: filepath.Join(dir, "config.d"),
		Environ: []string{"NODELET_V=much"}, Flags: map[string]string{"v": "-"},
	})
	require.Error(t, err)
	require.Equal(t, `cannot use the configuration, it has 23 faults:
config.yaml:3:1: unknown field "staticPodPth" (did you mean staticPodPath?)
config.yaml:4:11: unknown field "logging.formt" (did you mean logging.format?)
config.yaml:4:35: logging.verbosity: "3" is text and a whole number is expected; take the quotes away
config.yaml:4:48: logging.format: text is expected here
config.yaml:5:13: clusterDNS: "10.0.0.1" is not a list
config.yaml:6:37: staticPodURLHeader.Authorization: "Bearer x" is not a list
config.yaml:7:11: nodeName: 7 is not text; put it into quotes: "7"
config.yaml:8:22: serializeImagePulls: "yes" is not true or false
config.yaml:9:10: maxPods: 3000000000 is too large
config.yaml:10:1: unknown field "evictionHard": it is one of KubeletConfiguration that nodelet does not have
config.yaml:11:16: rootDirectory: anchors and references to them are not allowed; write the value out
config.yaml:12:15: runDirectory: anchors and references to them are not allowed; write the value out
config.yaml:13:27: registryConfigFiles[1]: text is expected here
config.yaml:14:1: anchors and references to them are not allowed; write the value out
config.yaml:15:3: the name of a field is expected here
config.yaml:17:16: registryBurst: "1.5" is not a whole number
config.yaml:18:47: crashLoopBackOff.maxContainerRestartPeriod: "soon" is not a duration, such as 20s
config.d/a.yaml:1:1: apiVersion or kind is missing; it must say apiVersion: config.nodelet.dev/v1alpha1 and kind: NodeletConfiguration
config.d/b.yaml:3:10: logging: "5" is not a mapping
config.d/b.yaml:4:1: unknown field "zzz"
config.d/c.yaml:1:13: unknown apiVersion "config.nodelet.dev/v2" of NodeletConfiguration; it must say apiVersion: config.nodelet.dev/v1alpha1 and kind: NodeletConfiguration
environment NODELET_V: "much" is not a whole number
flag --v: "-" is not a whole number`, shorten(err.Error(), dir))
}

// TestNoDocument: what is not one YAML mapping has a clear answer too.
func TestNoDocument(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"only a comment", "# later\n", ":1:1: the file is empty; it must say"},
		{"only a separator", "---\n", ":1:1: the file is empty"},
		{"two documents", head + "---\n" + head, ":4:1: a second document begins here, and a file holds one"},
		{"a list", "- a\n", ":1:1: the file does not hold fields"},
		{"text", "configuration", ":1:1: the file does not hold fields"},
		{"a broken line", head + "nodeName: a\nlogging\nmaxPods: 3\n", ":4: the file is not YAML: "},
		{"a tab", head + "logging:\n\tformat: text\n", ":4: the file is not YAML: found character that cannot start any token"},
		{"a list that does not end", head + "clusterDNS: [\nnodeName: a\n", ":3: the file is not YAML: "},
		{"no text", "\xff\xfe\x00", ":1:1: the file is not UTF-8 text"},
		{"too much", head + "# " + strings.Repeat("x", 1<<20), ":1:1: the file is larger than 1048576 bytes"},
		{"another case", head + "NodeName: a\n", `:3:1: unknown field "NodeName" (did you mean nodeName?)`},
		{"a beginning", head + "crash: {}\n", `:3:1: unknown field "crash" (did you mean crashLoopBackOff?)`},
		{"nothing like it", head + "swap: {}\n", `:3:1: unknown field "swap"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.text)
			require.ErrorContains(t, err, "config.yaml"+c.want)
		})
	}
	for _, text := range []string{"\ufeff" + head + "nodeName: a\n", "---\n" + head + "nodeName: a\n---\n", strings.ReplaceAll(head+"nodeName: a\n", "\n", "\r\n"), `{"apiVersion": "config.nodelet.dev/v1alpha1", "kind": "NodeletConfiguration", "nodeName": "a"}`} {
		c, err := load(t, text)
		require.NoError(t, err, "%q", text)
		require.Equal(t, "a", c.NodeName)
	}
}

// TestFaultOfAValue is at the place where the value was said.
func TestFaultOfAValue(t *testing.T) {
	dir := place(t, map[string]string{"config.yaml": head + "staticPodPath: a\nclusterDNS:\n- 10.0.0.1\n- dns\nmaxPods: 0\n", "config.d/a.yaml": head + "logging:\n  format: xml\n"})
	_, err := config.Load(config.Sources{
		File: filepath.Join(dir, "config.yaml"), Dir: filepath.Join(dir, "config.d"),
		Environ: []string{"NODELET_STATIC_POD_URL=ftp://x"}, Flags: map[string]string{"runtime-endpoint": ""},
	})
	require.Error(t, err)
	require.Equal(t, `cannot use the configuration, it has 6 faults:
config.yaml:6:3: clusterDNS[1]: "dns" is not an IP address
flag --runtime-endpoint: containerRuntimeEndpoint: it must not be empty
config.d/a.yaml:4:3: logging.format: "xml" is neither text nor json
config.yaml:7:1: maxPods: 0 is less than one
config.yaml:3:1: staticPodPath: "a" is not an absolute path
environment NODELET_STATIC_POD_URL: staticPodURL: it is not an http:// or https:// URL with a host`, shorten(err.Error(), dir))
}

// TestFind: the drop-ins belong to the file.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		name    string
		environ []string
		flags   map[string]string
		want    config.Sources
	}{
		{"nothing said", nil, nil, config.Sources{File: config.DefaultFile, Dir: config.DefaultDir}},
		{"an empty variable", []string{"NODELET_CONFIG="}, nil, config.Sources{File: config.DefaultFile, Dir: config.DefaultDir}},
		{"a variable", []string{"NODELET_CONFIG=/x/c.yaml"}, nil, config.Sources{File: "/x/c.yaml", FileRequired: true, Dir: "/x/config.d"}},
		{"a flag", []string{"NODELET_CONFIG=/x/c.yaml"}, map[string]string{"config": "/y/c.yaml"}, config.Sources{File: "/y/c.yaml", FileRequired: true, Dir: "/y/config.d"}},
		{"both flags", nil, map[string]string{"config": "/y/c.yaml", "config-dir": "/z"}, config.Sources{File: "/y/c.yaml", FileRequired: true, Dir: "/z", DirRequired: true}},
		{"a directory", []string{"NODELET_CONFIG_DIR=/z"}, nil, config.Sources{File: config.DefaultFile, Dir: "/z", DirRequired: true}},
		{"no drop-ins", nil, map[string]string{"config-dir": ""}, config.Sources{File: config.DefaultFile, DirRequired: true}},
	} {
		c.want.Environ, c.want.Flags = c.environ, c.flags
		require.Equal(t, c.want, config.Find(c.environ, c.flags), c.name)
	}
}

// TestStrangeVariables are told and stop nothing.
func TestStrangeVariables(t *testing.T) {
	l, err := config.Load(config.Sources{Environ: []string{"NODELET_ROOTDIR=/a", "NODELET_ZZZ=1", "NODELET_CONFIG=/c", "OTHER=2", "NODELET_YYY="}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"environment NODELET_ROOTDIR: unknown variable, it has no effect (did you mean NODELET_ROOT_DIR?)",
		"environment NODELET_ZZZ: unknown variable, it has no effect",
	}, l.Warnings)
}

// TestRelativePaths are those of the working directory in flags and variables,
// and refused in files.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	l, err := config.Load(config.Sources{Environ: []string{"NODELET_ROOT_DIR=root"}, Flags: map[string]string{"static-pod-path": "./pods", "run-dir": "/run/x/"}})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "root"), l.Config.RootDirectory)
	require.Equal(t, filepath.Join(dir, "pods"), l.Config.StaticPodPath)
	require.Equal(t, "/run/x", l.Config.RunDirectory)
	l, err = config.Load(config.Sources{Flags: map[string]string{"static-pod-path": ""}})
	require.NoError(t, err)
	require.Empty(t, l.Config.StaticPodPath)
}

// TestKubelet: what both have counts, what only the kubelet has is listed, and
// what neither has is refused.
func TestKubelet(t *testing.T) {
	dir := place(t, map[string]string{
		"config.yaml": kubeletHead + `address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
clusterDNS: [10.96.0.10]
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionHard: {memory.available: 100Mi}
fileCheckFrequency: 0s
healthzPort: 0
httpCheckFrequency: 5s
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 2, format: ""}
maxPods: 0
registerWithTaints: [{key: a, effect: NoSchedule}]
shutdownGracePeriod: 30s
staticPodPath: /etc/kubernetes/manifests
`,
		"config.d/own.yaml": head + "nodeName: edge\n",
	})
	s := config.Sources{File: filepath.Join(dir, "config.yaml"), Dir: filepath.Join(dir, "config.d")}
	l, err := config.Load(s)
	require.NoError(t, err)
	want := config.Default()
	want.NodeName, want.ClusterDNS, want.StaticPodPath, want.Logging.Verbosity = "edge", []string{"10.96.0.10"}, "/etc/kubernetes/manifests", 2
	want.HTTPCheckFrequency.Duration = 5e9
	require.Equal(t, want, l.Config)
	var ignored []string
	for _, i := range l.Ignored {
		ignored = append(ignored, shorten(i.Origin.String(), dir)+" "+i.Field)
	}
	require.Equal(t, []string{
		"config.yaml:3 address", "config.yaml:5 authentication.anonymous.enabled", "config.yaml:6 authentication.webhook.enabled",
		"config.yaml:11 evictionHard", "config.yaml:13 healthzPort", "config.yaml:15 logging.flushFrequency",
		"config.yaml:17 registerWithTaints", "config.yaml:18 shutdownGracePeriod",
	}, ignored)

	_, err = load(t, kubeletHead+`evictionHrad: {}
nodeName: edge
authentication: {anonymous: {enable: false}}
registerWithTaints: [{kye: a}]
maxPods: many
`)
	require.Error(t, err)
	for i, want := range []string{
		`:3:1: unknown field "evictionHrad" (did you mean evictionHard?)`,
		`:4:1: "nodeName" is a field of NodeletConfiguration, not of KubeletConfiguration; put it into a drop-in of that kind`,
		`:5:30: unknown field "authentication.anonymous.enable" (did you mean authentication.anonymous.enabled?)`,
		`:6:23: unknown field "registerWithTaints[].kye" (did you mean registerWithTaints[].key?)`,
		`:7:10: maxPods: "many" is not a whole number`,
	} {
		require.Contains(t, strings.Split(err.Error(), "\n")[i+1], want)
	}
}
