package apis

import (
	"fmt"
	"strings"
)

// Error is one thing that is wrong with one object of a file.
type Error struct {
	Line      int    // line of the file, 0 when unknown
	Index     int    // which object of the file, from 0
	Kind      string // kind of the object, "" when it cannot be told
	Namespace string // namespace as written
	Name      string // name as written, "" when it cannot be told
	Field     string // path of the field, "" when the whole object is meant
	Reason    string // one word: Syntax, Kind, UnknownField, DuplicateField, Type
	Detail    string // what is wrong, in words
}

// Error names the object, the line, the field and the reason.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cannot decode ")
	b.WriteString(e.Object())
	if e.Line > 0 {
		fmt.Fprintf(&b, " at line %d", e.Line)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Detail)
	return b.String()
}

// Object names the object in words: kind, namespace and name as far as they
// are known, else its position in the file.
func (e *Error) Object() string {
	kind := e.Kind
	if kind == "" {
		kind = "object"
	}
	switch {
	case e.Name != "" && e.Namespace != "":
		return fmt.Sprintf("%s %s/%s", kind, e.Namespace, e.Name)
	case e.Name != "":
		return fmt.Sprintf("%s %q", kind, e.Name)
	}
	return fmt.Sprintf("%s %d of the file", kind, e.Index+1)
}
