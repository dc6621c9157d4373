// Package convert turns pods and containers into CRI messages and reads
// identities back from what the runtime lists. It is pure: the same input gives
// the same bytes, in declaration order, and whatever is read of the
// machine comes in as a Node.
//
// An impossible configuration is a *pod.Error with pod.ClassInvalid, the reason
// that Kubernetes shows for it and a message that names the field. Decoding is
// total: labels and annotations that another program wrote give zero values,
// never a panic.
package convert
