package runtime

import (
	"strings"

	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"nodelet.dev/nodelet/internal/pod"
)

// This file is the border where error texts are read, because CRI says these
// things in no other way: an error of a registry reaches us as the text of an
// error with code Unknown, as does a name that is reserved. All that is above
// sees the class. A text that is not recognised is a plain failure, which is
// retried all the same; so a runtime that words things differently costs a less
// precise message and nothing else.

// nameReserved reports whether a sandbox or container of that name and attempt
// exists or is in the making. containerd 1.6 sends this without a code, and 2.4
// as a failed precondition.
func nameReserved(err error) bool {
	return contains(err, "is reserved for")
}

// creationClass is the class of a failure to create a sandbox or container.
func creationClass(err error) pod.Class {
	if nameReserved(err) {
		return pod.ClassExists
	}
	return classOf(err)
}

// startClass is the class of a failure to start a container. One that is not in
// the state to be started is a conflict and says nothing about the container:
// an earlier call, whose caller is gone, is starting it or was cut off.
func startClass(err error) pod.Class {
	if contains(err, "failed to set starting state for container") {
		return pod.ClassConflict
	}
	return classOf(err)
}

// registryFailure returns class and reason of a failed pull.
func registryFailure(err error) (pod.Class, string) {
	switch {
	case contains(err, crierrors.ErrSignatureValidationFailed.Error()):
		return pod.ClassInvalid, ReasonSignature
	case contains(err, crierrors.ErrRegistryUnavailable.Error()):
		return pod.ClassUnavailable, ReasonRegistry
	}
	switch class := classOf(err); class {
	case pod.ClassCancelled, pod.ClassDeadline, pod.ClassUnauthorized, pod.ClassInvalid,
		pod.ClassUnavailable: // the runtime, not the registry
		return class, ReasonPull
	default:
	}
	// A registry that wants credentials often says "not found" in the same breath,
	// so the more telling words come first.
	switch {
	case contains(err, "401 unauthorized", "403 forbidden", "authorization failed", "no basic auth credentials",
		"insufficient_scope", "access denied", "unauthorized:"):
		return pod.ClassUnauthorized, ReasonPull
	case contains(err, "connection refused", "no such host", "network is unreachable", "no route to host", "i/o timeout",
		"tls handshake timeout", "connection reset", "server misbehaving", "temporary failure in name resolution", "context deadline exceeded",
		"500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway timeout", "429 too many requests",
		"unexpected eof"):
		return pod.ClassUnavailable, ReasonRegistry
	case classOf(err) == pod.ClassNotFound, contains(err, "not found", "manifest unknown", "name unknown", "404"):
		return pod.ClassNotFound, ReasonPull
	}
	return classOf(err), ReasonPull
}

// contains reports whether the message of err contains one of the words, in any
// case.
func contains(err error, words ...string) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(status.Convert(err).Message())
	for _, word := range words {
		if strings.Contains(text, strings.ToLower(word)) {
			return true
		}
	}
	return false
}
