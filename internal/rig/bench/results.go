package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Who is measured.
const (
	subjectRaw     = "raw" // the bare CRI calls
	subjectNodelet = "nodelet"
	subjectKubelet = "kubelet"
)

// measure is one thing that is measured. Its unit is one that benchstat knows.
type measure struct {
	key   string // of benchstat's name
	title string
	unit  string
	goal  string
	// absolute compares with raw by the difference instead of the ratio.
	absolute bool
}

// Units.
const (
	unitTime  = "ns/op"
	unitBytes = "B"
	unitCPU   = "core-%"
	unitRate  = "steps/s"
)

// results are the samples of all measures, in the order of their first ones.
type results struct {
	order  []measure
	values map[string]map[string][]float64 // by key and subject
}

func newResults() *results { return &results{values: map[string]map[string][]float64{}} }

func (r *results) add(m measure, subject string, value float64) {
	if r.values[m.key] == nil {
		r.values[m.key] = map[string][]float64{}
		r.order = append(r.order, m)
	}
	r.values[m.key][subject] = append(r.values[m.key][subject], value)
}

func (r *results) took(m measure, subject string, d time.Duration) { r.add(m, subject, float64(d)) }

// table writes the medians, compared with the bare calls.
func (r *results) table(w io.Writer) {
	kubelet := false
	for _, m := range r.order {
		kubelet = kubelet || len(r.values[m.key][subjectKubelet]) > 0
	}
	head, rule := "| measure | raw | nodelet | ratio | goal |", "|---|---|---|---|---|"
	if kubelet {
		head, rule = head+" kubelet |", rule+"---|"
	}
	fmt.Fprintf(w, "%s\n%s\n", head, rule)
	for _, m := range r.order {
		raw, ours := r.values[m.key][subjectRaw], r.values[m.key][subjectNodelet]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |", m.title, m.text(raw), m.text(ours), m.compare(ours, raw), m.goal)
		if kubelet {
			fmt.Fprintf(w, " %s |", m.text(r.values[m.key][subjectKubelet]))
		}
		fmt.Fprintln(w)
	}
}

// samples writes every sample as benchstat reads it.
func (r *results) samples(w io.Writer) {
	fmt.Fprintln(w)
	for _, m := range r.order {
		for _, subject := range []string{subjectRaw, subjectNodelet, subjectKubelet} {
			for _, v := range r.values[m.key][subject] {
				fmt.Fprintf(w, "Benchmark%s/%s 1 %.6g %s\n", m.key, subject, v, m.unit)
			}
		}
	}
}

func median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}

// text is the median as people read it; nothing when there is none.
func (m measure) text(samples []float64) string {
	if len(samples) == 0 {
		return ""
	}
	v := median(samples)
	switch {
	case m.unit == unitTime && v < 1e6:
		return fmt.Sprintf("%.0f µs", v/1e3)
	case m.unit == unitTime && v < 1e7:
		return fmt.Sprintf("%.1f ms", v/1e6)
	case m.unit == unitTime:
		return fmt.Sprintf("%.0f ms", v/1e6)
	case m.unit == unitBytes && v < 1<<20:
		return fmt.Sprintf("%.1f kB", v/1024)
	case m.unit == unitBytes:
		return fmt.Sprintf("%.1f MB", v/(1<<20))
	case m.unit == unitCPU:
		return fmt.Sprintf("%.2f %% of a core", v)
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %s", v, m.unit))
}

func (m measure) compare(ours, raw []float64) string {
	if len(ours) == 0 || len(raw) == 0 {
		return ""
	}
	if m.absolute {
		return fmt.Sprintf("%+.0f ms", (median(ours)-median(raw))/1e6)
	}
	return fmt.Sprintf("%+.1f %%", (median(ours)/median(raw)-1)*100)
}
