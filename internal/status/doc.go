// Package status derives the public PodStatus of a pod: phase, conditions and
// container statuses. It is pure, like package plan, and looks at the same
// facts: the desired pod, the observation and the record.
package status
