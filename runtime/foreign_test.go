package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/convert"
	"nodelet.dev/nodelet/runtime/fakecri"
)

// runForeign makes a sandbox as another agent does: with the usual labels and
// without ours.
func runForeign(tb testing.TB, server *fakecri.Server) string {
	tb.Helper()
	response, err := server.RunPodSandbox(tb.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "theirs", Namespace: "other", Uid: "uid-theirs"},
		Labels:   map[string]string{convert.LabelPodName: "theirs", convert.LabelPodNamespace: "other", convert.LabelPodUID: "uid-theirs"},
	}})
	require.NoError(tb, err)
	return response.GetPodSandboxId()
}
