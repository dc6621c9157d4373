package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"nodelet.dev/nodelet/runtime/fakecri"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nodelet": main, "ask": ask})
}

// TestScripts runs the commands as people do: see testdata/script. Beside the
// usual commands a script has
//
//	exits CODE PROGRAM ARG...     the program ends with that code
//	fakecri                       a CRI runtime in memory at $CRI
//	await REGEXP PROGRAM ARG...   the program's output comes to match
//	ask WHERE PATH                GET from an agent's run directory or host:port
//	address VARIABLE [held]       a free loopback address, or one that is in use
//	                              until `release`
//	collector                     an OTLP collector at $OTLP
//	spans REGEXP                  it comes to have a span that matches
//
// and $SHORT, a directory whose path is short enough for sockets.
func TestScripts(t *testing.T) { runScripts(t, filepath.Join("testdata", "script")) }

func runScripts(t *testing.T, dir string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			short, err := os.MkdirTemp("/tmp", "ns") //nolint:usetesting // t.TempDir is too long for a unix socket
			if err != nil {
				return err
			}
			e.Defer(func() {
				if err := os.RemoveAll(short); err != nil {
					t.Error(err)
				}
			})
			e.Setenv("SHORT", short)
			e.Values[heldKey{}], e.Values[tracesKey{}] = new(net.Listener), &traces{}
			e.Setenv("CRI", "unix://"+filepath.Join(short, "cri.sock"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exitsWith, "fakecri": startFakeCRI, "await": await,
			"address": reserve, "release": release, "collector": startCollector, "spans": awaitSpan,
		},
	})
}

// exitsWith runs a program that must end with a code.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d instead of %d", code, want)
	}
}

func startFakeCRI(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: fakecri")
	}
	cri := fakecri.New(fakecri.Options{PullAny: true})
	ts.Check(cri.Listen(filepath.Join(ts.Getenv("SHORT"), "cri.sock")))
	ts.Defer(cri.Close)
}

// await runs a program again and again until its output matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await REGEXP PROGRAM ARG...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := ts.Exec(args[1], args[2:]...)
		text := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if want.MatchString(text) {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("no %q after %s, but %v and\n%s", args[0], patience, err, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
