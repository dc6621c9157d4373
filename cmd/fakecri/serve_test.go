package main

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestServesPodsFaultsAndAReport(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := command()
	var out lockedBuffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{
		"--socket", socket, "--pods", "20", "--containers", "2", "--latency", "1ms", "--latency", "Version=2ms",
		"--fault", "Status code=internal", "--events=false",
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()

	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	waiting, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	list, err := client.ListContainers(waiting, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	require.Len(t, list.GetContainers(), 40)
	_, err = client.Status(t.Context(), &runtimeapi.StatusRequest{})
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = client.Status(t.Context(), &runtimeapi.StatusRequest{})
	require.NoError(t, err, "the fault strikes once")
	stream, err := client.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))

	cancel()
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "20 pods")
	require.Contains(t, out.String(), "2 Status\n")
}

func TestRefusesBadFlags(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for reason, args := range map[string][]string{
		`required flag(s) "socket" not set`:   nil,
		"cannot follow flavor \"docker\"":     {"--socket", socket, "--flavor", "docker"},
		"cannot read latency \"soon\"":        {"--socket", socket, "--latency", "soon"},
		"cannot read fault \"Nothing\"":       {"--socket", socket, "--fault", "Nothing"},
		"the numbers must not be negative":    {"--socket", socket, "--pods", "-1"},
		"cannot listen on /no/such/directory": {"--socket", "/no/such/directory/s"},
	} {
		cmd := command()
		cmd.SetArgs(args)
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), reason)
	}
}

// lockedBuffer is written by the command's goroutine and read by the test's.
type lockedBuffer struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
