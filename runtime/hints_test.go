package runtime

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	apievents "github.com/containerd/containerd/api/events"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestHintOverflow: a reader that does not read loses the oldest hints and is
// told so first; the writer never waits.
func TestHintOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newHintQueue()
		for i := range maxHints + 3 {
			queue.push(Hint{ID: strconv.Itoa(i), What: HintStarted})
		}
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan Hint)
		var forwarder sync.WaitGroup
		forwarder.Go(func() { queue.forward(ctx, out) })
		require.Equal(t, Hint{What: HintOverflow}, <-out)
		for i := range maxHints {
			require.Equal(t, strconv.Itoa(i+3), (<-out).ID)
		}
		queue.push(Hint{ID: "last", What: HintStopped})
		require.Equal(t, Hint{ID: "last", What: HintStopped}, <-out)
		cancel()
		forwarder.Wait()
	})
}

func TestContainerdHint(t *testing.T) {
	for name, test := range map[string]struct {
		topic string
		event proto.Message
		want  Hint
		ok    bool
	}{
		"start":             {"/tasks/start", &apievents.TaskStart{ContainerID: "c", Pid: 7}, Hint{ID: "c", What: HintStarted}, true},
		"exit":              {"/tasks/exit", &apievents.TaskExit{ContainerID: "c", ID: "c"}, Hint{ID: "c", What: HintStopped}, true},
		"the end of a exec": {"/tasks/exit", &apievents.TaskExit{ContainerID: "c", ID: "exec-1"}, Hint{}, false},
		"oom":               {"/tasks/oom", &apievents.TaskOOM{ContainerID: "c"}, Hint{ID: "c", What: HintOOM}, true},
		"delete":            {"/containers/delete", &apievents.ContainerDelete{ID: "c"}, Hint{ID: "c", What: HintDeleted}, true},
		"image":             {"/images/create", &apievents.ImageCreate{Name: "c"}, Hint{}, false},
		"no ID":             {"/tasks/start", &apievents.TaskStart{}, Hint{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			event, err := anypb.New(test.event)
			require.NoError(t, err)
			got, ok := containerdHint(&apitypes.Envelope{Topic: test.topic, Event: event})
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.want, got)
		})
	}
	_, ok := containerdHint(&apitypes.Envelope{Topic: "/tasks/exit", Event: &anypb.Any{Value: []byte("\xff\xff")}})
	require.False(t, ok, "what cannot be read is no hint")
}

// TestCriViews: a hint waits until CRI shows what happened.
func TestCriViews(t *testing.T) {
	running := criView{known: true, exists: true, running: true}
	ended := criView{known: true, exists: true, ended: true}
	created := criView{known: true, exists: true}
	gone := criView{known: true}
	unreachable := criView{}
	for what, want := range map[string][5]bool{ // running, ended, created, gone, unreachable
		HintStarted: {true, true, false, false, false},
		HintStopped: {false, true, false, true, false},
		HintDeleted: {false, false, false, true, false},
		HintOOM:     {true, true, true, true, true},
	} {
		for i, view := range []criView{running, ended, created, gone, unreachable} {
			require.Equal(t, want[i], view.shows(what), "%s %d", what, i)
		}
	}
}
