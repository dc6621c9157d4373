// Package sim runs the decision core of many pods against a model of everything
// around it: one thread, a virtual clock, and every choice drawn from a seed,
// so that a history that went wrong can be run again.
//
// The model has a runtime that fails before the effect of a call, after it, late
// or never; programs that end, are killed or ignore signals; a disk that is
// full; an agent that is killed at any moment and reads back what it last wrote;
// a machine that reboots; a wall clock that steps; events that are lost or late;
// and a user who edits, replaces and deletes pods. The worker of the model goes
// through the same motions as package podworkers, without goroutines.
//
// Beside the model stands the truth: what really ran, when, and how it ended.
// After every event it is held against the invariants, each under its row's
// name. After the last fault every pod has to reach its goal within a bound, and
// at the end nothing may be left.
//
// The files: world (time), machine, calls, programs (the runtime), disk, worker,
// wave, agent (what nodelet does), user, chaos (what happens to it), truth, and
// the checks.
package sim
