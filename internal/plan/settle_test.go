package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/pod"
)

// TestWaitAfterFailures: what another pod holds is asked for every two seconds
// at the latest, since nobody tells when it is free; other failures wait longer.
func TestWaitAfterFailures(t *testing.T) {
	now := pod.Stamp{Wall: time.Unix(1000, 0), Boot: time.Hour, BootID: "b"}
	for class, longest := range map[pod.Class]time.Duration{
		pod.ClassConflict:    2 * time.Second,
		pod.ClassUnknown:     30 * time.Second,
		pod.ClassUnavailable: time.Second, // it does not add up
	} {
		var rec pod.Record
		result := Result{Action: Action{Op: OpCreateSandbox}, Err: pod.Errorf(class, "", "cannot")}
		for range 10 {
			rec = Settle(rec, []Result{result}, DefaultLimits(), now)
		}
		require.Equal(t, longest, rec.Sandbox.Failure.Until.Until(now), class)
	}
}
