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

// Merge returns the verdicts with newer ones about the same instance laid over
// them, kind by kind; about another instance the newer ones take their place.
func (v Verdicts) Merge(newer Verdicts) Verdicts {
	if v.ContainerID != newer.ContainerID {
		return newer
	}
	for _, kind := range []ProbeKind{Startup, Liveness, Readiness} {
		if news := newer.Of(kind); news != NoVerdict {
			v = v.With(kind, news)
		}
	}
	return v
}

// Of returns the verdict of the probes of one kind.
func (v Verdicts) Of(kind ProbeKind) Verdict {
	switch kind {
	case Startup:
		return v.Startup
	case Liveness:
		return v.Liveness
	case Readiness:
		return v.Readiness
	}
	return NoVerdict
}

// With returns the verdicts with another one of one kind.
func (v Verdicts) With(kind ProbeKind, verdict Verdict) Verdicts {
	switch kind {
	case Startup:
		v.Startup = verdict
	case Liveness:
		v.Liveness = verdict
	case Readiness:
		v.Readiness = verdict
	}
	return v
}
