package config

import (
	"fmt"
	"strings"
)

// OriginKind says what kind of place a value comes from. A later kind goes over
// an earlier one.
type OriginKind uint8

// The kinds of origins, from weak to strong.
const (
	FromDefault OriginKind = iota
	FromFile
	FromDropIn
	FromEnvironment
	FromFlag
)

// Origin is where a value was said.
type Origin struct {
	Kind OriginKind
	// Name is the path of a file, or the name of a variable, or of a flag without
	// its dashes.
	Name string
	// Line and Column count from one; both are zero outside of files. Column is
	// also zero when only the line is known.
	Line   int
	Column int
}

// String names the origin as people read it: default, PATH:LINE, drop-in
// PATH:LINE, environment NAME or flag --NAME.
func (o Origin) String() string {
	switch o.Kind {
	case FromDefault:
		return "default"
	case FromFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromDropIn:
		return fmt.Sprintf("drop-in %s:%d", o.Name, o.Line)
	case FromEnvironment:
		return "environment " + o.Name
	case FromFlag:
		return "flag --" + o.Name
	}
	return "unknown"
}

// place names the origin as compilers do, so that editors find it.
func (o Origin) place() string {
	switch {
	case o.Kind != FromFile && o.Kind != FromDropIn:
		return o.String()
	case o.Line == 0:
		return o.Name
	case o.Column == 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	}
	return fmt.Sprintf("%s:%d:%d", o.Name, o.Line, o.Column)
}

// Error is one thing that is wrong with a configuration.
type Error struct {
	Origin Origin
	// Reason says what is wrong, with the field, and what would do.
	Reason string
	cause  error
}

// Error returns PATH:LINE:COLUMN: REASON, or the like for what is not a file.
func (e *Error) Error() string { return e.Origin.place() + ": " + e.Reason }

// Unwrap returns what the system said, if it did.
func (e *Error) Unwrap() error { return e.cause }

// Errors is all that is wrong with a configuration, in the order in which it is
// read. It is never empty.
type Errors []*Error

// Error returns one line for each fault.
func (e Errors) Error() string {
	if len(e) == 1 {
		return "cannot use the configuration: " + e[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cannot use the configuration, it has %d faults:", len(e))
	for _, one := range e {
		b.WriteString("\n" + one.Error())
	}
	return b.String()
}

// Unwrap returns the faults.
func (e Errors) Unwrap() []error {
	list := make([]error, 0, len(e))
	for _, one := range e {
		list = append(list, one)
	}
	return list
}
