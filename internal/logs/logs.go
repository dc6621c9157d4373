package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// Formats of the log.
const (
	Text = "text"
	JSON = "json"
)

// MaxVerbosity is the highest level that makes a difference.
const MaxVerbosity = 10

// Options say where the log goes and how it looks.
type Options struct {
	// Format is Text or JSON.
	Format string
	// Verbosity is the highest level of the lines that are written, 0 to
	// MaxVerbosity.
	Verbosity int
	// Destination is what is known of the place that the log goes to.
	Destination Destination
}

// Destination is a place that a log goes to.
type Destination struct {
	// Out takes the lines.
	Out io.Writer
	// Terminal says that people read Out as it comes; Color that it shows colours.
	Terminal, Color bool
	// Journal says that Out leads to systemd's journal, and JournalSocket is where
	// the journal takes fields.
	Journal       bool
	JournalSocket string
}

// Setup sends the log of klog and slog to its destination. It is called once,
// before anything is logged. stop tells what was held back and has to be called
// last; what is logged later is written at once. ctx is for its values: the log
// goes on after it.
func Setup(ctx context.Context, o Options) (stop func(), err error) {
	if err := SetVerbosity(o.Verbosity); err != nil {
		return nil, err
	}
	handler, err := newHandler(o)
	if err != nil {
		return nil, err
	}
	limited := newLimiter(ctx, handler)
	logger := slog.New(limited)
	// What libraries log through klog without structure has a severity only in
	// klog's text.
	klog.SetLoggerWithOptions(fromSlog(limited), klog.ContextualLogger(true), klog.WriteKlogBuffer(func(line []byte) { logLine(ctx, logger, line) }))
	slog.SetDefault(logger)
	return func() { limited.stop(ctx) }, nil
}

// SetVerbosity changes the verbosity, also while the program runs.
func SetVerbosity(v int) error {
	if v < 0 || v > MaxVerbosity {
		return fmt.Errorf("cannot set the log verbosity to %d: it is a number from 0 to %d", v, MaxVerbosity)
	}
	return new(klog.Level).Set(strconv.Itoa(v))
}

// newHandler returns the handler of a format and a destination.
func newHandler(o Options) (slog.Handler, error) {
	d := o.Destination
	switch {
	case o.Format == JSON:
		return newJSON(d.Out), nil
	case o.Format != Text:
		return nil, fmt.Errorf("cannot log in the format %q: it is %s or %s", o.Format, Text, JSON)
	case d.Journal:
		return &lines{writer: newJournal(d.JournalSocket, d.Out)}, nil
	case d.Terminal:
		return &lines{writer: &terminal{out: d.Out, color: d.Color}}, nil
	}
	return klogText{sink(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(d.Out))))}, nil
}

// levelOf returns klog's V of a record.
func levelOf(r slog.Record) int { return max(0, -int(r.Level)) }

// enabled reports whether a level is written. klog asks itself before it calls;
// this is for those who come by slog.
func enabled(level slog.Level) bool {
	return level >= 0 || klog.V(klog.Level(-level)).Enabled()
}

// klogText writes klog's own text.
type klogText struct{ sink slogSink }

func (klogText) Enabled(_ context.Context, level slog.Level) bool { return enabled(level) }

func (h klogText) Handle(ctx context.Context, r slog.Record) error {
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(textual(attrsOf(r))...)
	return h.sink.Handle(ctx, named)
}

func (h klogText) WithAttrs(attrs []slog.Attr) slog.Handler {
	return klogText{h.sink.WithAttrs(textual(attrs))}
}

func (h klogText) WithGroup(name string) slog.Handler { return klogText{h.sink.WithGroup(name)} }

// Stderr returns what is known of the program's standard error. NO_COLOR and a
// dumb terminal forbid colours; JOURNAL_STREAM has to name the very file, since
// it is inherited also by programs whose output goes somewhere else.
func Stderr() Destination {
	d := Destination{Out: os.Stderr, JournalSocket: journalSocket}
	d.Journal = isStream(os.Stderr, os.Getenv("JOURNAL_STREAM"))
	d.Terminal = !d.Journal && IsTerminal(os.Stderr)
	d.Color = d.Terminal && Color(os.Getenv)
	return d
}

// Color reports whether the environment permits colours on a terminal.
func Color(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
