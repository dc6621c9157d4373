// Package podworkers runs one worker per pod UID. A worker owns everything that
// is known about its pod and repeats one loop: compute what can be done now,
// run that wave against the runtime, inspect the pod, record what must survive,
// publish the status, and sleep until something changes or the wake-up time
// that the plan returned.
//
// Work enters through a [Mailbox] of latest-wins slots; results leave through
// the one-way ports of [Deps]. Two signals end a worker, and they differ: a
// stop request ends the pod, leaving ends the worker and lets the pod run on.
package podworkers
