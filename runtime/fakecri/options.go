package fakecri

import (
	"context"
	"time"
)

// Flavor is the release of containerd whose behaviour the fake follows where releases differ.
type Flavor string

const (
	// Containerd24 is containerd 2.4 and the default.
	Containerd24 Flavor = "2.4"
	// Containerd16 is containerd 1.6, which has neither GetContainerEvents nor RuntimeConfig.
	Containerd16 Flavor = "1.6"
)

// Options of a server. The zero value is a useful server without images.
type Options struct {
	// Flavor defaults to Containerd24.
	Flavor Flavor
	// NoEvents answers GetContainerEvents with Unimplemented, as Containerd16 does.
	NoEvents bool
	// Images that are present or can be pulled. Others are not found, unless PullAny is set.
	Images []Image
	// PullAny lets every well-formed image name be pulled.
	PullAny bool
	// LogFiles makes containers write CRI log files where the log directory and path of their configuration say.
	LogFiles bool
	// Latency of a call by its name, such as "RunPodSandbox", before its effect. The name "" is for all the others.
	Latency map[string]time.Duration
	// Programs replace the interpreter. A key is a container's name, an image's name as the container gives it, or the
	// first word of its command, in this order of preference.
	Programs map[string]Program
	// Exec replaces the interpreter for ExecSync. It returns handled=false to leave a command to the interpreter.
	Exec func(ctx context.Context, container string, command []string) (result ExecResult, handled bool)
	// AddressPrefix is the first two numbers of pod addresses, "10.88" by default.
	AddressPrefix string
	// JournalSize is how many calls the journal holds; the oldest are dropped. 100,000 by default.
	JournalSize int
}

// ExecResult is what a command leaves behind.
type ExecResult struct {
	Stdout, Stderr string
	ExitCode       int32
}

// Program is what a container runs. It returns the exit code. It must return soon after ctx ends (the container was
// killed, its code is then 137 whatever is returned).
type Program func(ctx context.Context, p *Process) int

// Image describes one image at the registry and on the machine.
type Image struct {
	// Ref is the name, such as "busybox:1". It is completed as containerd does (docker.io/library/busybox:1).
	Ref string
	// ID is the config digest; derived from Ref by default. Names with the same ID are one image.
	ID string
	// Size in bytes, 1 MiB by default.
	Size uint64
	// Present means that the image need not be pulled.
	Present bool
	// Pinned images are reported as such.
	Pinned bool
	// Command is run by containers that give neither command nor args. By default a program that ends with 0 on TERM.
	Command []string
	// User is a number or a name.
	User string
	// Username and Password that a pull must bring, if set.
	Username, Password string
	// PullLatency is how long a pull takes.
	PullLatency time.Duration
	// PullError is returned by every pull, after PullLatency: a gRPC status error.
	PullError error
}
