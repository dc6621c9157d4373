package convert

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/pod"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

func testNode() Node {
	return Node{
		Name: "node-1", HostIPs: []string{"192.0.2.10", "2001:db8::10"}, PodLogsDir: "/var/log/pods",
		ResolvConf: "# the node's\nnameserver 192.0.2.53\nsearch corp.example example.\noptions timeout:2 rotate\n",
		ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local",
		Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse("4"),
			corev1.ResourceMemory:           resource.MustParse("8Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"),
		},
		MinOOMScoreAdj: -1000, SeccompDir: "/var/lib/nodelet/seccomp", MaskedPaths: []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"},
	}
}

// TestConfig holds what the runtime is asked for against transcripts: a pod in
// NAME.yaml, everything made from it in NAME.golden.
func TestConfig(t *testing.T) {
	inputs, err := filepath.Glob("testdata/config/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, inputs)
	for _, input := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(input)
			require.NoError(t, err)
			p := &corev1.Pod{}
			require.NoError(t, yaml.UnmarshalStrict(text, p))
			got := transcript(t, p)
			golden := strings.TrimSuffix(input, ".yaml") + ".golden"
			if *rewrite {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			require.Equal(t, got, transcript(t, p), "the same input gives the same text (Q-7)")
		})
	}
}

func transcript(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	var b strings.Builder
	node := testNode()
	for _, w := range SandboxWarnings(p, node) {
		fmt.Fprintf(&b, "warning %s: %s\n", w.Reason, w.Message)
	}
	config, err := SandboxConfig(SandboxInput{Pod: p, Attempt: 1, SpecHash: "v1-spec", Node: node})
	section(t, &b, "sandbox", config, err)
	ips := []string{"10.0.0.7", "fd00::7"}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers, ephemeral(p)} {
		for i := range list {
			c, kind := pod.Find(&p.Spec, list[i].Name)
			in := ContainerInput{
				Pod: p, Container: c, Kind: kind, Attempt: 2, ImageRef: "sha256:0123", SpecHash: "v1-spec", Node: node,
				Sandbox: pod.Sandbox{ID: "sandbox-1", IPs: ips},
				Mounts:  []pod.Mount{{HostPath: "/pods/x/etc-hosts", ContainerPath: "/etc/hosts", ReadOnly: true}},
			}
			if kind == pod.KindEphemeral {
				in.TargetID = "target-1"
			}
			config, err := ContainerConfig(in)
			section(t, &b, kind.String()+" container "+c.Name, config, err)
		}
	}
	b.WriteString("--- hosts file\n" + HostsFile(p, ips, "127.0.0.1 localhost\n192.0.2.10 node-1", node.ClusterDomain))
	return b.String()
}

func ephemeral(p *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	for i := range p.Spec.EphemeralContainers {
		out = append(out, corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// section writes a message as YAML. The text form of protobuf is not stable, so
// it goes through JSON values.
func section(t *testing.T, b *strings.Builder, title string, message proto.Message, err error) {
	t.Helper()
	fmt.Fprintf(b, "--- %s\n", title)
	if err != nil {
		require.Equal(t, pod.ClassInvalid, pod.ClassOf(err))
		fmt.Fprintf(b, "%s: %v\n", pod.ReasonOf(err, ""), err)
		return
	}
	text, err := protojson.Marshal(message)
	require.NoError(t, err)
	var value map[string]any
	require.NoError(t, json.Unmarshal(text, &value))
	readableEnv(t, value)
	text, err = yaml.Marshal(value)
	require.NoError(t, err)
	b.Write(text)
}

// readableEnv shows values, which CRI takes as bytes, as text.
func readableEnv(t *testing.T, config map[string]any) {
	t.Helper()
	list, ok := config["envs"].([]any)
	if !ok {
		return
	}
	for i := range list {
		entry, ok := list[i].(map[string]any)
		require.True(t, ok)
		var value []byte
		if text, ok := entry["value"].(string); ok {
			require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &value))
		}
		list[i] = fmt.Sprintf("%s=%s", entry["key"], value)
	}
}
