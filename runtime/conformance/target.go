package conformance

import (
	"context"
	"testing"

	"google.golang.org/grpc"
)

// Flavor is a release whose answers differ from others.
type Flavor string

// The releases that the suite knows.
const (
	Containerd16 Flavor = "containerd 1.6"
	Containerd24 Flavor = "containerd 2.4"
)

// Target is a runtime under test, and what it has been prepared with.
type Target struct {
	Conn   *grpc.ClientConn
	Flavor Flavor
	// Image is on the machine and runs a shell with the usual small tools.
	Image string
	// PullImage and SecretImage can be pulled, the latter with User and Password. MissingImage is unknown to its
	// registry, and no registry answers at UnreachableImage's.
	PullImage, SecretImage, MissingImage, UnreachableImage string
	User, Password                                         string
	// OOMCommand uses memory until the container's limit of 64 MiB ends it.
	OOMCommand []string
	// Restart ends the runtime's daemon without warning and starts it again.
	Restart func(context.Context) error
}

// Run runs the suite. open is called once, with the test that owns the target.
func Run(t *testing.T, open func(*testing.T) Target) {
	t.Helper()
	target := open(t)
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(newSuite(t, target)) })
	}
}

type namedCase struct {
	name string
	run  func(*suite)
}

func cases() []namedCase {
	return []namedCase{
		{"version and status", versionAndStatus},
		{"a container from creation to exit", lifecycle},
		{"exit codes and reasons", exitCodes},
		{"a command that does not exist", startError},
		{"out of memory", outOfMemory},
		{"a container starts once", startsOnce},
		{"names of sandboxes stay in use", sandboxNames},
		{"names of containers stay in use", containerNames},
		{"stop asks before it kills", stopAsksFirst},
		{"stop kills after the grace period", stopKills},
		{"a stop that its caller abandons", stopAbandoned},
		{"stop of what does not run", stopIdle},
		{"a shared process namespace", sharedProcesses},
		{"stopping a sandbox", stopSandbox},
		{"removing what runs", removeRunning},
		{"what is not there", notFound},
		{"filters of sandboxes", sandboxFilters},
		{"filters of containers", containerFilters},
		{"labels, annotations and attempts return", metadataReturns},
		{"addresses", addresses},
		{"host network", hostNetwork},
		{"logs", logs},
		{"exec", exec},
		{"resources", resources},
		{"images", images},
		{"image errors", imageErrors},
		{"events", events},
		{"a restart of the daemon", restart},
	}
}
