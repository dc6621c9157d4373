package runtime

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nodelet.dev/nodelet/internal/pod"
)

// Reasons that Kubernetes shows for failures of the runtime (STC-3).
const (
	ReasonCreateSandbox   = "CreatePodSandboxError"
	ReasonNetwork         = "NetworkNotReady"
	ReasonKillSandbox     = "KillPodSandboxError"
	ReasonCreateContainer = "CreateContainerError"
	ReasonRunContainer    = "RunContainerError"
	ReasonKillContainer   = "KillContainerError"
	ReasonPull            = "ErrImagePull"
	ReasonRegistry        = "RegistryUnavailable"
	ReasonNeverPull       = "ErrImageNeverPull"
	ReasonInvalidImage    = "InvalidImageName"
	ReasonInspectImage    = "ImageInspectError"
	ReasonSignature       = "SignatureValidationFailed"
)

// failed wraps an error of the runtime. The format says what could not be done.
func failed(err error, reason, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &pod.Error{Class: classOf(err), Reason: reason, Err: fmt.Errorf("cannot "+format+": %w", append(args, said(err))...)}
}

// answer is an error of a call that reads as what the runtime said, without the
// words of the protocol around it. Users meet it in events and statuses.
type answer struct{ err error }

func (a answer) Error() string {
	if unserved(a.err) {
		return noCRI
	}
	return status.Convert(a.err).Message()
}

func (a answer) Unwrap() error { return a.err }

func said(err error) error {
	if _, ok := status.FromError(err); !ok {
		return err
	}
	return answer{err}
}

// classOf maps an error of a call to a class, by its gRPC status, and where that
// is not enough to tell a runtime without CRI from a call that it lacks.
func classOf(err error) pod.Class {
	if class := pod.ClassOf(err); class != pod.ClassUnknown {
		return class
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return pod.ClassDeadline
	case errors.Is(err, context.Canceled):
		return pod.ClassCancelled
	case unserved(err):
		return pod.ClassUnavailable
	}
	switch status.Code(err) {
	case codes.OK:
		return pod.ClassNone
	case codes.NotFound:
		return pod.ClassNotFound
	case codes.AlreadyExists:
		return pod.ClassExists
	case codes.Unavailable:
		return pod.ClassUnavailable
	case codes.DeadlineExceeded:
		return pod.ClassDeadline
	case codes.Canceled:
		return pod.ClassCancelled
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return pod.ClassInvalid
	case codes.Unauthenticated, codes.PermissionDenied:
		return pod.ClassUnauthorized
	case codes.Unknown, codes.Internal, codes.Aborted, codes.ResourceExhausted, codes.DataLoss:
		return pod.ClassUnknown
	}
	return pod.ClassUnknown
}

// isNotFound reports whether the object of a call does not exist.
func isNotFound(err error) bool { return classOf(err) == pod.ClassNotFound }
