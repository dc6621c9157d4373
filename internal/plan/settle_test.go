package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/internal/pod"
)

func settle(rec pod.Record, results ...plan.Result) pod.Record {
	return plan.Settle(rec, results, plan.DefaultLimits(), pod.Stamp{Wall: start(), BootID: "boot1"})
}

// TestSettleChangesNothingInPlace holds that records are values.
func TestSettleChangesNothingInPlace(t *testing.T) {
	before := pod.Record{
		Sandbox:    pod.SandboxRecord{Stopped: append(make([]string, 0, 8), "s0")},
		Containers: map[string]pod.ContainerRecord{"web": {Attempts: 1}},
	}
	after := settle(before,
		plan.Result{Action: plan.Action{Op: plan.OpStartContainer, Container: "web", ID: "web-0"}, Err: pod.Errorf(pod.ClassInvalid, "", "cannot")},
		plan.Result{Action: plan.Action{Op: plan.OpStopSandbox, ID: "s1"}})
	other := settle(before, plan.Result{Action: plan.Action{Op: plan.OpStopSandbox, ID: "s2"}})
	require.Nil(t, before.Containers["web"].Failure)
	require.NotNil(t, after.Containers["web"].Failure)
	require.Equal(t, []string{"s0"}, before.Sandbox.Stopped)
	require.Equal(t, []string{"s0", "s1"}, after.Sandbox.Stopped)
	require.Equal(t, []string{"s0", "s2"}, other.Sandbox.Stopped)
}

// TestStoppedSandboxes holds that the list stays as short as it can be.
func TestStoppedSandboxes(t *testing.T) {
	stop := plan.Result{Action: plan.Action{Op: plan.OpStopSandbox, ID: "s0"}}
	require.Equal(t, []string{"s0"}, settle(pod.Record{}, stop, stop).Sandbox.Stopped)
	require.Empty(t, settle(pod.Record{}, plan.Result{Action: plan.Action{Op: plan.OpRemoveSandbox, ID: "s0"}}).Sandbox.Stopped)
	stop.Err = pod.Errorf(pod.ClassUnknown, "", "cannot")
	require.Empty(t, settle(pod.Record{}, stop).Sandbox.Stopped)
}

// TestOpText names every operation (R29), and one beyond.
func TestOpText(t *testing.T) {
	var got []string
	for op := plan.Op(0); op <= plan.OpPullImage+1; op++ {
		got = append(got, op.String())
	}
	require.Equal(t, []string{
		"none", "set-up-volumes", "create-sandbox", "create-container", "start-container", "stop-container",
		"kill-container", "remove-container", "stop-sandbox", "remove-sandbox", "tear-down-volumes", "pull-image", "op(12)",
	}, got)
}
