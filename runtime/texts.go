package runtime

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
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

// noCRI is what to do about a containerd whose CRI plug-in is disabled, as some
// packages have it.
const noCRI = "containerd answers but has no CRI service; remove cri from disabled_plugins in /etc/containerd/config.toml"

// unserved reports whether somebody answers who does not speak CRI. gRPC has one
// code for a service and for a method that is not there.
func unserved(err error) bool {
	var said interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &said) {
		return false
	}
	answer := said.GRPCStatus() // as it came, without the words around it
	return answer.Code() == codes.Unimplemented && strings.Contains(answer.Message(), "unknown service runtime.v1.")
}

// unreachable is why there is no connection, as people read it.
func unreachable(endpoint string, err error) error {
	path := strings.TrimPrefix(endpoint, "unix://")
	switch {
	case unserved(err):
		return errors.New(noCRI)
	case contains(err, "no such file or directory"):
		return fmt.Errorf("no socket at %s; is it started, and is containerRuntimeEndpoint right?", path)
	case contains(err, "connection refused"):
		return fmt.Errorf("nobody answers at %s; is it started?", path)
	case contains(err, "permission denied"):
		return fmt.Errorf("cannot open %s: permission denied", path)
	case classOf(err) == pod.ClassDeadline:
		return fmt.Errorf("no answer at %s", path)
	}
	return said(err)
}

// networkProblem is what a runtime says about a network that is not ready.
// containerd's condition does not name the directory that it has searched, but
// its verbose status does.
func networkProblem(message string, info map[string]string) string {
	load := strings.Trim(info["lastCNILoadStatus"], `"`)
	if load == "" || load == "OK" {
		return message
	}
	return load
}

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

// pullProblem says in words of our own what went wrong, since those of registries
// differ, and what to do about it. What they said follows.
func pullProblem(class pod.Class, reason, image string, err error) error {
	registry := registryOf(image)
	switch {
	case reason == ReasonRegistry:
		return fmt.Errorf("registry unreachable: see that %s can be reached from this machine, or bring the image with nodelet images import: %w", registry, err)
	case reason == ReasonPull && class == pod.ClassNotFound:
		return fmt.Errorf("not found: see that the name is right and that %s has it: %w", registry, err)
	case reason == ReasonPull && class == pod.ClassUnauthorized:
		return fmt.Errorf("unauthorized: give credentials for %s in one of registryConfigFiles: %w", registry, err)
	}
	return err
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
