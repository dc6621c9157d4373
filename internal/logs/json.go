package logs

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"
)

// jsonLines writes one object a line, with ts, level and msg first.
type jsonLines struct{ slog.Handler }

func newJSON(out io.Writer) slog.Handler {
	return jsonLines{slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.Level(-MaxVerbosity), ReplaceAttr: jsonAttr})}
}

func (h jsonLines) Enabled(_ context.Context, level slog.Level) bool { return enabled(level) }

// Handle lays the parts of a pod's name side by side, as everything that collects
// logs wants them: {"pod":"web","namespace":"shop"}.
func (h jsonLines) Handle(ctx context.Context, r slog.Record) error {
	flat := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		flat.AddAttrs(subject(a)...)
		return true
	})
	if v := levelOf(r); v > 0 {
		flat.AddAttrs(slog.Int("v", v))
	}
	return h.Handler.Handle(ctx, flat)
}

func (h jsonLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	var flat []slog.Attr
	for _, a := range attrs {
		flat = append(flat, subject(a)...)
	}
	return jsonLines{h.Handler.WithAttrs(flat)}
}

func (h jsonLines) WithGroup(name string) slog.Handler { return jsonLines{h.Handler.WithGroup(name)} }

func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		return slog.String("ts", a.Value.Time().UTC().Format(time.RFC3339Nano))
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String("level", levelName(level))
		}
	}
	return a
}

func levelName(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "error"
	case level >= slog.LevelWarn:
		return "warning"
	case level >= slog.LevelInfo:
		return "info"
	}
	return "debug"
}

// subject names what a line is about in the same words whoever wrote it: pod,
// namespace, podUID and container.
func subject(a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Key {
	case "pod":
		namespace, name := "", a.Value.String()
		if a.Value.Kind() == slog.KindGroup {
			for _, part := range a.Value.Group() {
				switch part.Key {
				case "namespace":
					namespace = part.Value.String()
				case "name":
					name = part.Value.String()
				}
			}
		} else if before, after, ok := strings.Cut(name, "/"); ok {
			namespace, name = before, after
		}
		out := []slog.Attr{slog.String("pod", name)}
		if namespace != "" {
			out = append(out, slog.String("namespace", namespace))
		}
		return out
	case "containerName":
		return []slog.Attr{{Key: "container", Value: a.Value}}
	}
	return []slog.Attr{a}
}
