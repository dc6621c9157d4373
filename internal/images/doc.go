// Package images brings images to a machine without a network, and lists, pins
// and removes those that are there. It speaks to containerd itself, in the
// namespace that CRI uses, since CRI can neither import nor pin; it is the only
// importer of the containerd client.
//
// An archive is checked and unpacked before any name is given to it, under a
// lease that keeps containerd's collector away. So a damaged archive changes
// nothing, and an image that has a name can be used.
//
// A pin is the label that containerd 1.7 and later show as pinned in CRI; older
// ones keep it too. Directory imports the archives of a directory and keeps them
// imported.
package images
