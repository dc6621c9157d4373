package runtime

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nodelet.dev/nodelet/internal/pod"
)

// TestUnserved: a runtime without CRI is away, and a call that a runtime lacks is
// not; both come with one code.
func TestUnserved(t *testing.T) {
	none := status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")
	lacks := status.Error(codes.Unimplemented, "unknown method RuntimeConfig for service runtime.v1.RuntimeService")
	require.Equal(t, pod.ClassUnavailable, classOf(none))
	require.Equal(t, pod.ClassInvalid, classOf(lacks))
	require.EqualError(t, failed(none, "", "list pods"), "cannot list pods: "+noCRI)
	require.EqualError(t, failed(lacks, "", "list pods"), "cannot list pods: unknown method RuntimeConfig for service runtime.v1.RuntimeService")
}

// TestUnreachable: what people read about a runtime that cannot be connected to.
func TestUnreachable(t *testing.T) {
	for text, err := range map[string]error{
		noCRI: fmt.Errorf("validate: %w", status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")),
		"no socket at /x; is it started, and is containerRuntimeEndpoint right?": status.Error(codes.Unavailable, "dial unix /x: connect: no such file or directory"),
		"nobody answers at /x; is it started?":                                   status.Error(codes.Unavailable, "dial unix /x: connect: connection refused"),
		"cannot open /x: permission denied":                                      status.Error(codes.Unavailable, "dial unix /x: connect: permission denied"),
		"no answer at /x":                                                        context.DeadlineExceeded,
	} {
		require.EqualError(t, unreachable("unix:///x", failed(err, "", "connect to the container runtime at /x")), unreachable("unix:///x", err).Error(), "also when it is wrapped")
		require.EqualError(t, unreachable("unix:///x", err), text)
	}
}

func TestNetworkProblem(t *testing.T) {
	require.Equal(t, "cni plugin not initialized", networkProblem("cni plugin not initialized", nil))
	require.Equal(t, "cni plugin not initialized", networkProblem("cni plugin not initialized", map[string]string{"lastCNILoadStatus": "OK"}))
	require.Equal(t, "no network config found in /etc/cni/net.d",
		networkProblem("cni plugin not initialized", map[string]string{"lastCNILoadStatus": `"no network config found in /etc/cni/net.d"`}))
}

// TestPullProblem: different words for what needs different hands.
func TestPullProblem(t *testing.T) {
	cause := errors.New("it said so")
	for _, c := range []struct {
		class  pod.Class
		reason string
		want   string
	}{
		{pod.ClassNotFound, ReasonPull, "not found: see that the name is right and that docker.io has it: it said so"},
		{pod.ClassUnauthorized, ReasonPull, "unauthorized: give credentials for docker.io in one of registryConfigFiles: it said so"},
		{pod.ClassUnavailable, ReasonRegistry, "registry unreachable: see that docker.io can be reached from this machine, or bring the image with nodelet images import: it said so"},
		{pod.ClassUnavailable, ReasonPull, "it said so"},
		{pod.ClassInvalid, ReasonSignature, "it said so"},
	} {
		err := pullProblem(c.class, c.reason, "web:1", cause)
		require.EqualError(t, err, c.want)
		require.ErrorIs(t, err, cause)
	}
}
