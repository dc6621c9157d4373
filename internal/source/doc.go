// Package source delivers the desired set of pods from files and over HTTP,
// and says what a change to a pod means.
//
// A source always delivers its whole set, never a delta, and never sends the
// same set twice. What is broken is reported as a Problem and does not take
// anything away: of a file that cannot be read, parsed or accepted the last
// good objects stay as long as the file exists (Q-2, INV-25). A source that was
// never read delivers nothing, so that nobody takes silence for an empty set.
//
// Run owns all state of a source; only the problems of the last round can be
// read from outside.
package source
