package fakecri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nodelet.dev/nodelet/runtime/fakecri"
)

func TestParseFault(t *testing.T) {
	got, err := fakecri.ParseFault("StartContainer container=web uid=u nth=2 times=-1 mode=late delay=5s code=notfound message=gone")
	require.NoError(t, err)
	require.Equal(t, fakecri.Fault{
		RPC: "StartContainer", Container: "web", UID: "u", Nth: 2, Times: -1, Mode: fakecri.Late, Delay: 5 * time.Second,
		Err: status.Error(codes.NotFound, "gone"),
	}, got)
	got, err = fakecri.ParseFault("* image=busybox:1")
	require.NoError(t, err)
	require.Empty(t, got.RPC)
	require.Equal(t, codes.Unavailable, status.Code(got.Err))

	for line, reason := range map[string]string{
		"":                             "must begin with the name of a call",
		"StartContainers":              `no call "StartContainers"`,
		"StopContainer mode=sometimes": `unknown mode "sometimes"`,
		"StopContainer code=teapot":    `unknown gRPC code "teapot"`,
		"StopContainer often":          "not of the form key=value",
		"StopContainer nth=x":          "nth",
		"StopContainer when=now":       `unknown key "when"`,
	} {
		_, err := fakecri.ParseFault(line)
		require.ErrorContains(t, err, reason, line)
	}
}

func TestModesReadWhatTheyPrint(t *testing.T) {
	for mode := fakecri.FailBefore; mode <= fakecri.Slow; mode++ {
		got, err := fakecri.ParseFault("Version mode=" + mode.String())
		require.NoError(t, err)
		require.Equal(t, mode, got.Mode)
	}
	require.Equal(t, "mode 99", fakecri.Mode(99).String())
}
