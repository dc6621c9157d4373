package probes

import (
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Result is how one run of a probe ended.
type Result uint8

// The results.
const (
	// None means that the container could not be asked; it counts for nothing.
	None Result = iota
	Success
	Failure
	// Warning is a success that the author of the pod should know more about.
	Warning
)

// String returns the result as metrics label it.
func (r Result) String() string {
	switch r {
	case Success:
		return "successful"
	case Failure:
		return "failed"
	case Warning:
		return "warning"
	case None:
		return "unknown"
	}
	return "unknown"
}

// Counter counts equal results in a row, of one probe of one container instance.
type Counter struct {
	passing bool
	row     int32
}

// Count returns the counter after one more result, and the verdict: the one that
// held so far, until a result came so often in a row that the probe's threshold
// for it is reached (PRB-12).
func Count(c Counter, r Result, probe *corev1.Probe, held pod.Verdict) (Counter, pod.Verdict) {
	if r == None {
		return c, held
	}
	passing := r != Failure
	if c.row == 0 || c.passing != passing {
		c = Counter{passing: passing}
	}
	verdict, threshold := pod.Failed, probe.FailureThreshold
	if passing {
		verdict, threshold = pod.Passed, probe.SuccessThreshold
	}
	// What was reached stays reached, however long it goes on.
	c.row = min(c.row+1, max(threshold, 1))
	if c.row < threshold {
		return c, held
	}
	return c, verdict
}

// Decided reports whether a probe of a kind has nothing more to say about a
// container instance: it failed for good, or its start succeeded (PRB-7).
func Decided(kind pod.ProbeKind, v pod.Verdict) bool {
	switch kind {
	case pod.Startup:
		return v != pod.NoVerdict
	case pod.Liveness:
		return v == pod.Failed
	case pod.Readiness:
		return false
	}
	return false
}
