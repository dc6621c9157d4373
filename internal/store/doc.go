// Package store keeps what must survive the agent: instances of pods with their
// records, and the objects that pods refer to. It is one bbolt file, with a
// format version and JSON values.
//
// A write that returned without an error is on disk. Writes of many goroutines
// are committed together: while one commit waits for the disk the next ones
// gather, and a lone writer waits for nobody. (bbolt's own batching lets each
// lone writer wait for company.)
//
// Layout, format 1:
//
//	meta       format -> decimal number; other keys are the caller's, with a prefix
//	instances  UID -> {"user": Pod, "pod": Pod}
//	records    UID -> Record
//	objects    one bucket per kind: namespace/name -> {"origin": …, "raw": …}
//
// The record is apart from the specs because it is written often and they are
// not. A file of a newer format is refused and left as it is.
package store
