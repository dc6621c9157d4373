package rig

import (
	"context"
	"os"
	"testing"
	"time"
)

const stopWait = 2 * time.Minute

// ForTest starts an instance for one test and stops it at its end; the daemon's log is shown if the test failed.
// The test fails, and is not skipped, where something is missing.
func ForTest(tb testing.TB, flavor Flavor) *Containerd {
	tb.Helper()
	if err := Sweep(tb.Context(), os.TempDir()); err != nil {
		tb.Log(err)
	}
	// The test's TempDir names the test in its path, which makes it too long for unix sockets.
	dir, err := os.MkdirTemp("", "rig") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	c, err := Start(tb.Context(), Options{Dir: dir, Flavor: flavor, Owned: true})
	if err != nil {
		_ = os.RemoveAll(dir)
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of containerd (%s):\n%s", flavor, lastLines(c.Log(), 200))
		}
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), stopWait)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return c
}
