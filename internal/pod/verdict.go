package pod

// Verdict is what the probes of one kind concluded about a container.
type Verdict uint8

// The verdicts. NoVerdict means that the probe has not decided yet.
const (
	NoVerdict Verdict = iota
	Passed
	Failed
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case NoVerdict:
		return "none"
	case Passed:
		return "passed"
	case Failed:
		return "failed"
	}
	return "none"
}

// Verdicts are the newest verdicts about one container instance. They carry its
// ID, so a verdict about a dead instance is void.
type Verdicts struct {
	ContainerID string  `json:"containerID"`
	Startup     Verdict `json:"startup,omitempty"`
	Liveness    Verdict `json:"liveness,omitempty"`
	Readiness   Verdict `json:"readiness,omitempty"`
}
