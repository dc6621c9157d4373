package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2/textlogger"
)

// writer takes a record and the same as text, without a time or a severity.
type writer interface {
	write(r slog.Record, attrs []slog.Attr, text string) error
}

// lines turns records into the text "message key=value", as klog writes it.
type lines struct {
	writer writer
	attrs  []slog.Attr // of the handler
	group  string      // prefix of the keys to come, with its dot
}

func (*lines) Enabled(_ context.Context, level slog.Level) bool { return enabled(level) }

func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append(slices.Clip(h.attrs), h.named(attrs)...)
	return &next
}

func (h *lines) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "."
	}
	return &next
}

// named puts the group before the keys.
func (h *lines) named(attrs []slog.Attr) []slog.Attr {
	if h.group == "" {
		return attrs
	}
	out := slices.Clone(attrs)
	for i := range out {
		out[i].Key = h.group + out[i].Key
	}
	return out
}

func (h *lines) Handle(ctx context.Context, r slog.Record) error {
	attrs := append(slices.Clip(h.attrs), h.named(attrsOf(r))...)
	text, err := pairs(ctx, attrs)
	if err != nil {
		return err
	}
	return h.writer.write(r, attrs, r.Message+text)
}

func attrsOf(r slog.Record) []slog.Attr {
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	return attrs
}

// textual gives values that have a text that text, where slog would take them
// apart: pod="dock/web" is what people search for.
func textual(attrs []slog.Attr) []slog.Attr {
	out := slices.Clone(attrs)
	for i, a := range out {
		if s, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() == slog.KindLogValuer {
			out[i].Value = slog.StringValue(s.String())
		}
	}
	return out
}

// pairs returns ` key="value"` for each attribute, in the way of klog.
func pairs(ctx context.Context, attrs []slog.Attr) (string, error) {
	var out bytes.Buffer
	text := sink(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out), textlogger.WithHeader(false))))
	record := slog.NewRecord(time.Time{}, slog.LevelInfo, "", 0)
	record.AddAttrs(textual(attrs)...)
	if err := text.Handle(ctx, record); err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimPrefix(out.String(), `""`), "\n"), nil
}

// terminal writes short lines: the time of day, the severity where it matters,
// and the text.
type terminal struct {
	out   io.Writer
	color bool

	mu sync.Mutex // keeps lines apart
}

func (t *terminal) write(r slog.Record, _ []slog.Attr, text string) error {
	name, paint := "", ""
	switch {
	case r.Level >= slog.LevelError:
		name, paint = "error: ", "\x1b[31m"
	case r.Level >= slog.LevelWarn:
		name, paint = "warning: ", "\x1b[33m"
	case r.Level < slog.LevelInfo:
		paint = "\x1b[2m"
	}
	line := r.Time.Format(time.TimeOnly) + " " + name + text
	if t.color && paint != "" {
		line = paint + line + "\x1b[0m"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := io.WriteString(t.out, line+"\n")
	return err
}
