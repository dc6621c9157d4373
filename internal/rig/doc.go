// Package rig starts a private containerd for tests, benchmarks and the demo.
//
// One instance lives in one directory: root, state, socket, CNI configuration, address store, runc root and log. It has
// a bridge and a subnet of its own, so that several instances run side by side and none touches the machine's own
// containerd. Images are built in memory from the machine's static busybox and imported, so no registry is reached.
//
// What is needed and absent is an error that names the Debian package to install. Everything needs root.
//
// The instance is described by a file in its directory: [Open] finds it again from another process, which is how a
// demo is ended by a second command.
package rig
