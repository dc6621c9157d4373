// Package node knows the machine: its names, addresses, sizes and clocks, and
// which of its ports are taken.
package node
