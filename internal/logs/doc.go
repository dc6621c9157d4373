// Package logs sends what the program logs through klog and log/slog to one
// place, in one of four forms: klog's own text, short lines for people at a
// terminal, JSON, or fields for the journal of systemd. What repeats itself is
// counted instead of written.
//
// Everything is a slog.Handler. JSON comes from the standard library's handler,
// which klog links anyway; the zap of k8s.io/component-base/logs/json would add
// two megabytes for the same lines.
package logs
