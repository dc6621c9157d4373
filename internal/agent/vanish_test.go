package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/runtime/fakecri"
)

// TestPodThatCameAndWent: without events, a pod that appears and vanishes between
// two listings shows in none of them; its worker has seen it (INV-22).
func TestPodThatCameAndWent(t *testing.T) {
	onStage(t, fakecri.Options{}, []string{"file"}, func(s *stage) {
		s.after(5 * time.Second) // the stream stands, the next listing is a minute away
		s.cri.Inject(fakecri.Fault{RPC: "Event", Times: -1})
		s.send("file", newPod("a"))
		s.settle()
		require.Equal(s, []string{"a main"}, s.running())
		s.cri.Wipe()
		s.after(2 * time.Minute)
		require.Equal(s, []string{"a main"}, s.running())
		require.EqualValues(s, 1, s.shown("a").Status.ContainerStatuses[0].RestartCount)
	})
}
