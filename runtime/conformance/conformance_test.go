package conformance_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"nodelet.dev/nodelet/internal/rig"
	"nodelet.dev/nodelet/runtime/conformance"
	"nodelet.dev/nodelet/runtime/fakecri"
)

func TestFake(t *testing.T) {
	conformance.Run(t, openFake(fakecri.Containerd24, conformance.Containerd24))
}

func TestFake16(t *testing.T) {
	conformance.Run(t, openFake(fakecri.Containerd16, conformance.Containerd16))
}

func TestRealDebian(t *testing.T) { conformance.Run(t, openReal(rig.Debian, conformance.Containerd16)) }
func TestRealV2(t *testing.T)     { conformance.Run(t, openReal(rig.V2, conformance.Containerd24)) }

func openFake(flavor fakecri.Flavor, as conformance.Flavor) func(*testing.T) conformance.Target {
	return func(t *testing.T) conformance.Target {
		t.Helper()
		target := conformance.Target{
			Flavor:           as,
			Image:            rig.BusyboxImage,
			PullImage:        "127.0.0.1:5000/pull:1",
			SecretImage:      "127.0.0.1:5000/secret:1",
			MissingImage:     "127.0.0.1:5000/missing:1",
			UnreachableImage: "127.0.0.1:1/unreachable:1",
			User:             "me",
			Password:         "secret",
			OOMCommand:       []string{"oom"},
		}
		s := fakecri.New(fakecri.Options{
			Flavor:   flavor,
			LogFiles: true,
			Images: []fakecri.Image{
				{Ref: target.Image, Present: true},
				{Ref: target.PullImage},
				{Ref: target.SecretImage, Username: target.User, Password: target.Password},
				{Ref: target.UnreachableImage, PullError: status.Error(codes.Unknown, "dial tcp 127.0.0.1:1: connect: connection refused")},
			},
		})
		t.Cleanup(s.Close)
		socket := filepath.Join(t.TempDir(), "s")
		require.NoError(t, s.Listen(socket))
		target.Conn = dial(t, "unix://"+socket)
		target.Restart = func(context.Context) error {
			s.Crash()
			return s.Resume()
		}
		return target
	}
}

func openReal(flavor rig.Flavor, as conformance.Flavor) func(*testing.T) conformance.Target {
	return func(t *testing.T) conformance.Target {
		t.Helper()
		c := rig.ForTest(t, flavor)
		registry, err := rig.NewRegistry(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, registry.Close()) })
		push := func(ref string) string {
			image, err := rig.Busybox(t.Context(), ref)
			require.NoError(t, err)
			full, err := registry.Push(t.Context(), ref, image)
			require.NoError(t, err)
			return full
		}
		target := conformance.Target{
			Conn:             dial(t, c.Endpoint()),
			Flavor:           as,
			Image:            rig.BusyboxImage,
			PullImage:        push("pull:1"),
			SecretImage:      push("secret:1"),
			MissingImage:     registry.Address() + "/missing:1",
			UnreachableImage: "127.0.0.1:1/unreachable:1",
			User:             "me",
			Password:         "secret",
			OOMCommand:       []string{"tail", "/dev/zero"},
		}
		registry.Protect("secret", target.User, target.Password)
		target.Restart = func(ctx context.Context) error {
			if err := c.Kill9(ctx); err != nil {
				return err
			}
			return c.Restart(ctx)
		}
		return target
	}
}

func dial(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}
