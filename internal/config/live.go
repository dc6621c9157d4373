package config

// liveFields are the fields that a running agent applies. Applied has the same
// ones.
func liveFields() []string {
	return []string{
		"crashLoopBackOff.maxContainerRestartPeriod",
		"fileCheckFrequency", "httpCheckFrequency", "staticPodURLHeader",
		"logging.verbosity", "maxPods", "registryBurst", "registryPullQPS",
	}
}

// Applied returns the configuration of a running agent after it was told another
// one: the fields that can be applied live are new, the others wait for a
// restart.
func Applied(running, next Configuration) Configuration {
	running.CrashLoopBackOff = next.CrashLoopBackOff
	running.FileCheckFrequency = next.FileCheckFrequency
	running.HTTPCheckFrequency = next.HTTPCheckFrequency
	running.StaticPodURLHeader = next.StaticPodURLHeader
	running.Logging.Verbosity = next.Logging.Verbosity
	running.MaxPods = next.MaxPods
	running.RegistryBurst = next.RegistryBurst
	running.RegistryPullQPS = next.RegistryPullQPS
	return running
}
