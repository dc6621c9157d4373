package probes

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// check is a gRPC probe: one call of grpc.health.v1 (PRB-25).
type check struct {
	address, service, userAgent string
	timeout                     time.Duration
}

func (h *check) ask(ctx context.Context) (r Result, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+h.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(h.userAgent), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBodyBytes)),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return dialer().DialContext(ctx, "tcp", at) }))
	if err != nil {
		return None, "", fmt.Errorf("cannot make a gRPC client for %s: %w", h.address, err)
	}
	defer func() { _ = conn.Close() }() // it can only say that it is closed already
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: h.service})
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		return Failure, "this server does not implement the grpc health protocol (grpc.health.v1.Health): " + status.Convert(err).Message(), nil
	case code == codes.DeadlineExceeded || timedOut(ctx, err):
		return Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", h.timeout), nil
	case err != nil:
		return Failure, "rpc error: " + status.Convert(err).Message(), nil
	case answer.GetStatus() != healthv1.HealthCheckResponse_SERVING:
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()), nil
	}
	return Success, "service healthy", nil
}
