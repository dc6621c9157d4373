package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestNoFieldIsIgnoredInSilence: what can make no difference on one node is told
// by path, once for each version of the pod.
func TestNoFieldIsIgnoredInSilence(t *testing.T) {
	onStage(t, fakecri.Options{}, []string{"file"}, func(s *stage) {
		p := changed(newPod("web"), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
		s.send("file", p)
		s.settle()
		require.Equal(s, 1, s.reasons("web")["WithoutEffect"])
		require.Contains(s, strings.Join(s.events("web"), "\n"), "spec.nodeSelector has no effect")
		s.restart()
		s.send("file", p)
		s.settle()
		require.Equal(s, 1, s.reasons("web")["WithoutEffect"], "an agent that starts again has nothing new to tell")
	})
}
