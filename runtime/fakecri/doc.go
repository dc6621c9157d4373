// Package fakecri is a CRI v1 server in memory, for tests and for cmd/fakecri.
//
// It keeps what matters to an agent the way containerd does: names that stay in use, states, attempts, exit codes and
// reasons, addresses, stop with a grace period, events, images. What a container runs is decided by a small interpreter
// (see [Options.Programs] for hooks) that knows sleep, true, false, echo, cat, ls, touch, rm, test, date, env, hostname,
// top, oom and `sh -c` with sequences, && and ||, exit, trap, wait, background sleep and endless loops. Signals act as they do on a
// real PID 1: a program without a trap ignores TERM, unless the pod shares its process namespace; a trap waits for a
// foreground sleep and interrupts `wait`. A command that it does not know cannot be started (exit code 128, StartError).
//
// Time passes through package time alone and no mutex is held while anything blocks, so the server also runs in a
// testing/synctest bubble, over [Server.Bufconn].
//
// Every call can be made to fail before its effect, after it, late or never: see [Fault]. [Server.Crash],
// [Server.Resume], [Server.Reboot] and [Server.Wipe] model what happens to a runtime and its machine.
//
// Where releases of containerd differ, [Options.Flavor] chooses; the conformance suite next door holds the fake to both.
package fakecri
