package pod

import (
	"errors"
	"fmt"
)

// Class says what kind of failure an error of the runtime is. Everything above
// the runtime switches on the class and never on the text.
type Class uint8

// The classes of failures.
const (
	ClassNone         Class = iota // no failure
	ClassUnknown                   // anything else
	ClassNotFound                  // the object does not exist
	ClassExists                    // the name is reserved or the object exists
	ClassUnavailable               // the runtime or the registry cannot be reached
	ClassDeadline                  // the call took too long
	ClassCancelled                 // the caller gave up
	ClassInvalid                   // the request can never succeed as it is
	ClassUnauthorized              // a registry refused the credentials
	ClassNetwork                   // the pod network is not ready
	ClassConflict                  // something else holds a resource, such as a host port
)

// String returns the class as one lower-case word.
func (c Class) String() string {
	names := [...]string{"none", "unknown", "notfound", "exists", "unavailable", "deadline", "cancelled", "invalid", "unauthorized", "network", "conflict"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Error is a failure with its class and, where Kubernetes has a word for it,
// the reason that a container status shows (STC-3).
type Error struct {
	Class  Class
	Reason string
	Err    error
}

// Errorf makes an Error; the format may wrap with %w.
func Errorf(class Class, reason, format string, args ...any) *Error {
	return &Error{Class: class, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Error returns the text of the wrapped error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error: ClassNone for nil, ClassUnknown when
// no error in its tree carries one.
func ClassOf(err error) Class {
	if err == nil {
		return ClassNone
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassUnknown
}

// ReasonOf returns the reason that the error carries, or fallback.
func ReasonOf(err error, fallback string) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != "" {
		return e.Reason
	}
	return fallback
}

// Wait is one reason why a pod, or one of its containers, is not yet what it
// should be.
type Wait struct {
	Container string `json:"container,omitempty"` // empty for the pod as a whole
	Reason    string `json:"reason"`              // as a container status shows it (STC-3)
	Message   string `json:"message,omitempty"`
}
