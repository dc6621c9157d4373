// Package plan decides what a pod needs next. It is pure: values in, values
// out, with no goroutine, clock, I/O or logger.
//
// [Compute] looks at the desired pod, the newest observation, the record and
// the current time, and answers with the actions that can run at once (the
// wave), the images that are wanted, what to remember, when to look again, and
// why the pod waits. Order comes from computing again after each wave, never
// from a script: first the pod is killed when its sandbox must change, then
// containers that must not run, then the sandbox is created, then ephemeral
// containers, the next init container, and the normal containers.
//
// A worker calls [RequestStop] when somebody wants the pod to end, [Settle] with
// the results of a wave, and [Probed] with what a probe concluded; each returns a
// new record. [Probes] chooses the probes that are to run. Phases move one way:
//
//	syncing -> terminating -> terminated -> finished
package plan
