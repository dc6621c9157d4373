package logs

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
)

// slogSink is what klog's text logger offers beside logr's interface.
type slogSink = logr.SlogSink

// sink returns the sink of klog's text logger.
func sink(l logr.Logger) slogSink {
	s, ok := l.GetSink().(logr.SlogSink)
	if !ok {
		panic("klog's text logger no longer takes slog records")
	}
	return s
}

// fromSlog makes a logger for klog from a handler.
func fromSlog(h slog.Handler) logr.Logger { return logr.FromSlogHandler(h) }

// logLine logs a line of klog's text, such as "W1130 14:03:03.123456  1 x.go:7] text".
func logLine(ctx context.Context, logger *slog.Logger, line []byte) {
	level := slog.LevelInfo
	if len(line) > 0 {
		switch line[0] {
		case 'W':
			level = slog.LevelWarn
		case 'E', 'F':
			level = slog.LevelError
		}
	}
	if _, text, ok := bytes.Cut(line, []byte("] ")); ok {
		line = text
	}
	// The place in the code would be klog's own.
	record := slog.NewRecord(time.Now(), level, string(bytes.TrimRight(line, "\n")), 0)
	// A log that cannot be written has nobody to be told to.
	_ = logger.Handler().Handle(ctx, record)
}
