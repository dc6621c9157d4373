// Package preflight looks at a machine before an agent runs on it, and says what
// would go wrong and how to mend it. It changes nothing.
//
// Run makes a list of results, one for each check, in the order in which a
// person would mend things: what is wrong further up is often the cause of what
// is wrong below. Each check is a function of a Machine, which stands for the
// file system, a few system calls and the container runtime, so all of it is
// tested on recorded machines.
//
// What cannot be looked at because of an earlier failure is left out: a runtime
// that does not answer is one failure and not ten.
package preflight
