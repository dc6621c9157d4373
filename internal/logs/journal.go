package logs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// journalSocket is where journald takes entries with fields.
const journalSocket = "/run/systemd/journal/socket"

// identifier is what journalctl shows before each line.
const identifier = "nodelet"

// Priorities of syslog.
const (
	priorityError   = 3
	priorityWarning = 4
	priorityInfo    = 6
	priorityDebug   = 7
)

func priorityOf(level slog.Level) int {
	switch {
	case level >= slog.LevelError:
		return priorityError
	case level >= slog.LevelWarn:
		return priorityWarning
	case level >= slog.LevelInfo:
		return priorityInfo
	}
	return priorityDebug
}

// journal sends entries to journald in its native protocol: one datagram of
// fields each. That is written here in a few lines, since the journal package of
// go-systemd knows one fixed socket, which no test can stand in for, and hides
// from its callers whether that socket is there.
//
// An entry that does not get through (no journald, or too long for a datagram)
// goes to the stream instead, with the priority in front as journald expects it
// there: the fields are lost, the line is not.
type journal struct {
	socket string
	stream io.Writer

	mu   sync.Mutex // guards conn and keeps the lines of the stream apart
	conn *net.UnixConn
}

func newJournal(socket string, stream io.Writer) *journal {
	return &journal{socket: socket, stream: stream}
}

func (j *journal) write(r slog.Record, attrs []slog.Attr, text string) error {
	entry := entryOf(r, attrs, text)
	j.mu.Lock()
	defer j.mu.Unlock()
	// A second try is for a journald that was started again.
	for range 2 {
		if j.conn == nil {
			conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: j.socket, Net: "unixgram"})
			if err != nil {
				break
			}
			j.conn = conn
		}
		if _, err := j.conn.Write(entry); err == nil {
			return nil
		}
		_ = j.conn.Close() // it is of no more use
		j.conn = nil
	}
	prefix := fmt.Sprintf("<%d>", priorityOf(r.Level))
	_, err := io.WriteString(j.stream, prefix+strings.ReplaceAll(text, "\n", "\n"+prefix)+"\n")
	return err
}

// entryOf returns the datagram of an entry.
func entryOf(r slog.Record, attrs []slog.Attr, text string) []byte {
	var out bytes.Buffer
	field(&out, "MESSAGE", text)
	field(&out, "PRIORITY", strconv.Itoa(priorityOf(r.Level)))
	field(&out, "SYSLOG_IDENTIFIER", identifier)
	if r.PC != 0 {
		frame, _ := goruntime.CallersFrames([]uintptr{r.PC}).Next()
		field(&out, "CODE_FILE", frame.File)
		field(&out, "CODE_LINE", strconv.Itoa(frame.Line))
		field(&out, "CODE_FUNC", frame.Function)
	}
	for _, a := range attrs {
		for _, part := range subject(a) {
			field(&out, fieldName(part.Key), part.Value.Resolve().String())
		}
	}
	return out.Bytes()
}

// field writes a field. A value of several lines goes with its length.
func field(out *bytes.Buffer, name, value string) {
	out.WriteString(name)
	if !strings.Contains(value, "\n") {
		out.WriteString("=" + value + "\n")
		return
	}
	out.WriteByte('\n')
	_ = binary.Write(out, binary.LittleEndian, uint64(len(value))) // a buffer takes it
	out.WriteString(value + "\n")
}

// fieldName turns a key such as podUID into a field such as POD_UID. What would
// be one of the journal's own fields gets a prefix.
func fieldName(key string) string {
	switch key {
	case "pod":
		return "POD_NAME"
	case "namespace":
		return "POD_NAMESPACE"
	case "container":
		return "CONTAINER_NAME"
	}
	var name strings.Builder
	lower := false // the last letter was one
	for _, c := range key {
		switch {
		case c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c):
			c = '_'
		case unicode.IsUpper(c) && lower:
			name.WriteByte('_')
		}
		lower = unicode.IsLower(c) || unicode.IsDigit(c)
		name.WriteRune(unicode.ToUpper(c))
	}
	out := strings.Trim(name.String(), "_")
	if out == "" || unicode.IsDigit(rune(out[0])) || reserved(out) {
		out = "NODELET_" + out
	}
	return out[:min(len(out), 64)] // the journal's bound
}

// reserved reports whether a field has a meaning for the journal.
func reserved(name string) bool {
	return slices.Contains([]string{"MESSAGE", "MESSAGE_ID", "PRIORITY", "ERRNO"}, name) ||
		strings.HasPrefix(name, "CODE_") || strings.HasPrefix(name, "SYSLOG_")
}
