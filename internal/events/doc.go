// Package events records what happens to objects, as Kubernetes Events with the
// kubelet's reasons: counted when repeated, combined when similar, bounded in
// number and age, kept across restarts by a Keeper, and written to the
// program's log.
//
// The correlator of client-go was not taken: it throws away what comes too
// often, has a cache of its own beside the log, and brings a REST client.
package events
