// Package runtime speaks CRI: pods and containers in, gRPC out, and back.
//
// A Client is given domain words and answers in them; no CRI type leaves the
// package. Every error is a *pod.Error whose class comes from the gRPC status,
// so nothing above reads error texts. The one place that does read them, because
// CRI has nothing else there, is texts.go.
//
// Client.Run owns everything that runs in the background: the connection and the
// pulls that several callers share. While the runtime cannot be reached every
// call fails at once with pod.ClassUnavailable, and when it is back calls work
// again, whichever process then answers on the socket.
//
// Only what carries the ownership label is listed as ours. State always comes
// from listing; Events delivers hints about where to look.
//
// Inside the package the standard library's runtime is imported as goruntime.
package runtime
