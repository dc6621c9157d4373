// Package gc removes what dead pods and containers leave in the runtime and on
// disk. [Victims] chooses, and is pure; [Collector] lists and removes.
package gc
