// Package systemd tells a service manager how the daemon is doing: that it is
// ready, what it is busy with, that it reloads or stops, and that its main loops
// are alive. It speaks the sd_notify protocol of systemd, which other managers
// speak too. Without a socket in the environment nothing is told and nothing
// fails.
package systemd
