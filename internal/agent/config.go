package agent

import (
	"time"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/node"
	"nodelet.dev/nodelet/internal/plan"
	"nodelet.dev/nodelet/runtime"
)

// stopTimeout is how long the waves in flight may take to end when the agent
// leaves.
const stopTimeout = 10 * time.Second

// limits returns the delays of the planner.
func limits(c config.Configuration) plan.Limits {
	l := plan.DefaultLimits()
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil {
		l.BackoffMax = d.Duration
		l.BackoffInitial = min(l.BackoffInitial, d.Duration) // BO-5
	}
	return l
}

// linksDir is where the links to the logs go: collectors look in one place, and
// only for logs that are in their usual place too.
func linksDir(c config.Configuration) string {
	if c.PodLogsDir == config.Default().PodLogsDir {
		return runtime.DefaultContainerLogLinksDir
	}
	return ""
}

func runtimeOptions(c config.Configuration, facts node.Facts) runtime.Options {
	o := runtime.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageEndpoint: c.ImageServiceEndpoint,
		PodLogsDir: c.PodLogsDir, ContainerLogLinksDir: linksDir(c),
		NodeName: facts.Name, HostIPs: facts.HostIPs,
		ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain,
		RequestTimeout: c.RuntimeRequestTimeout.Duration, PullBurst: int(c.RegistryBurst),
		Allocatable: facts.Allocatable, MemoryCapacityBytes: facts.MemoryBytes, MinOOMScoreAdj: facts.MinOOMScoreAdj,
	}
	if c.ResolvConf != nil {
		o.ResolvConf = *c.ResolvConf
	}
	o.MaxParallelPulls = c.Pulls()
	if c.RegistryPullQPS != nil {
		o.PullQPS = float64(*c.RegistryPullQPS)
	}
	return o
}
