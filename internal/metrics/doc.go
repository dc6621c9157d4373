// Package metrics counts what the agent does, in the text format of Prometheus.
//
// What means the same as in the kubelet has the kubelet's name and labels, so
// that dashboards and alerts work; the rest begins with nodelet_. The values of a
// Metrics are its own: there is no global registry. Events are counted when they
// happen; the state of the node is counted at a scrape, so that nothing is kept
// up to date while nobody asks. No label holds the name of a pod, a container or
// an image, and every label has a bounded number of values.
package metrics
