// Package pod is the vocabulary of nodelet: identity, observation, record,
// verdict, failure and time values that the other packages exchange.
//
// A desired pod is a *corev1.Pod whose UID is set and which nobody changes
// after it was decoded: it is shared between goroutines, not copied. What the
// runtime says about it is an Observation; what must outlive the agent is a
// Record. The package holds values with equality and text, and no behaviour
// beyond that: no goroutine, no clock, no I/O.
package pod
