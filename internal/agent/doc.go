// Package agent builds everything once, joins the ports, and owns syncLoop: the
// goroutine that selects over the config, PLEG, sync and housekeeping channels
// and dispatches to the pod workers.
//
// The desired set belongs to syncLoop. Each key (namespace and name) has at most
// one instance at work; a replacement waits in its entry until the old instance
// is finished, so two generations of a pod never overlap (INV-4).
package agent
