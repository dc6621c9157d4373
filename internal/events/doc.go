// Package events keeps what happened to pods, for people to read: Kubernetes
// Events with upstream reasons, repeats counted instead of repeated, bounded in
// number and age.
package events
