// Package conformance is one suite of raw CRI calls that the fake runtime and every supported containerd must pass.
//
// It pins what the engine relies on: what names stay in use, what is idempotent, which class an error has, what a stop
// leaves behind. Where releases of containerd differ, [Target.Flavor] says which answer is right; a difference that is
// not written down here is a bug of the fake.
package conformance
