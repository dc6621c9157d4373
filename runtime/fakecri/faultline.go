package fakecri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// modeNames are indexed by Mode.
func modeNames() []string { return []string{"before", "after", "late", "hang", "hang-after", "slow"} }

// String is the mode as ParseFault reads it.
func (m Mode) String() string {
	if names := modeNames(); int(m) < len(names) && m >= 0 {
		return names[m]
	}
	return "mode " + strconv.Itoa(int(m))
}

// ParseFault reads a fault from one line: the name of a call, or * for all, then words of the form key=value.
//
//	StartContainer container=web nth=2 times=3 mode=after code=Internal
//	PullImage image=busybox:1 mode=slow delay=30s times=-1
//
// Keys: container, uid, image (which calls); nth, times (which of them); mode (before, after, late, hang, hang-after,
// slow); code and message (the error); delay (for late and slow).
func ParseFault(line string) (Fault, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return Fault{}, fmt.Errorf("cannot read fault %q: it must begin with the name of a call, or *", line)
	}
	var f Fault
	if f.RPC = words[0]; f.RPC == "*" {
		f.RPC = ""
	} else if !knownCall(f.RPC) {
		return Fault{}, fmt.Errorf("cannot read fault %q: CRI has no call %q", line, f.RPC)
	}
	code, message := codes.Unavailable, "injected fault"
	for _, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		if !found {
			return Fault{}, fmt.Errorf("cannot read fault %q: %q is not of the form key=value", line, word)
		}
		var err error
		switch key {
		case "code":
			// codes.Code reads its own names only as JSON in capitals with underscores; ours are those it prints.
			code, err = parseCode(value)
		case "message":
			message = value
		default:
			err = f.set(key, value)
		}
		if err != nil {
			return Fault{}, fmt.Errorf("cannot read fault %q: %w", line, err)
		}
	}
	f.Err = status.Error(code, message)
	return f, nil
}

func (f *Fault) set(key, value string) error {
	var err error
	switch key {
	case "container":
		f.Container = value
	case "uid":
		f.UID = value
	case "image":
		f.Image = value
	case "nth":
		f.Nth, err = strconv.Atoi(value)
	case "times":
		f.Times, err = strconv.Atoi(value)
	case "delay":
		f.Delay, err = time.ParseDuration(value)
	case "mode":
		index := slices.Index(modeNames(), value)
		if index < 0 {
			return fmt.Errorf("unknown mode %q (want one of %s)", value, strings.Join(modeNames(), ", "))
		}
		f.Mode = Mode(index)
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func parseCode(name string) (codes.Code, error) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if strings.EqualFold(code.String(), name) {
			return code, nil
		}
	}
	return 0, fmt.Errorf("unknown gRPC code %q", name)
}
