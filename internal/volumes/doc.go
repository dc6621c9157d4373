// Package volumes sets up what a pod's containers mount and takes it away
// again: emptyDir and hostPath volumes, subPaths, the hosts file and the files
// for termination messages.
//
// Everything of a pod lies under <root>/pods/<uid>, in the kubelet's layout
// (VOL-4). The manager keeps no state: what is set up is read from the disk and
// from the kernel's mount table, so that it is right after any restart. Calls
// about one pod come from one worker; calls about different pods may overlap,
// and so may Mounts for the containers of one pod.
//
// Mounting is done by system call rather than through mount-utils, which runs
// the mount program: a subPath must be mounted by file descriptor, whether the
// kernel knows an option is told by an errno, and unmounting must not follow
// links that a container may have made.
package volumes
