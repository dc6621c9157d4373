package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Fault is a value that an agent could not work with.
type Fault struct {
	// Field is the path of the field, such as logging.format.
	Field string
	// Reason says what is wrong and what would do.
	Reason string
}

// Error implements error.
func (f *Fault) Error() string { return f.Field + ": " + f.Reason }

// Validate checks the values that an agent could not work with. The error joins
// one *Fault for each, ordered by field.
func (c *Configuration) Validate() error {
	faults := c.faults()
	list := make([]error, 0, len(faults))
	for _, f := range faults {
		list = append(list, f)
	}
	return errors.Join(list...)
}

func (c *Configuration) faults() []*Fault {
	var all faultList
	c.checkPaths(&all)
	c.checkEndpoints(&all)
	c.checkNumbers(&all)
	c.checkPulls(&all)
	slices.SortStableFunc(all, func(a, b *Fault) int { return cmp.Compare(a.Field, b.Field) })
	return all
}

// faultList collects faults.
type faultList []*Fault

// check adds a fault when what is wanted does not hold.
func (l *faultList) check(holds bool, field, reason string, args ...any) {
	if !holds {
		*l = append(*l, &Fault{Field: field, Reason: fmt.Sprintf(reason, args...)})
	}
}

func (c *Configuration) checkPaths(l *faultList) {
	paths := []struct {
		field, path string
		optional    bool
	}{
		{"rootDirectory", c.RootDirectory, false},
		{"runDirectory", c.RunDirectory, false},
		{"podLogsDir", c.PodLogsDir, false},
		{"staticPodPath", c.StaticPodPath, true},
		{"imageCredentialProviderConfigFile", c.ImageCredentialProviderConfigFile, true},
		{"imageCredentialProviderBinDir", c.ImageCredentialProviderBinDir, true},
	}
	for i, path := range c.RegistryConfigFiles {
		l.check(filepath.IsAbs(path), fmt.Sprintf("registryConfigFiles[%d]", i), "%q is not an absolute path", path)
	}
	for _, p := range paths {
		l.check(filepath.IsAbs(p.path) || (p.optional && p.path == ""), p.field, "%q is not an absolute path", p.path)
	}
	if c.ResolvConf != nil {
		l.check(*c.ResolvConf == "" || filepath.IsAbs(*c.ResolvConf), "resolvConf", "%q is not an absolute path", *c.ResolvConf)
	}
}

func (c *Configuration) checkEndpoints(l *faultList) {
	l.check(c.ContainerRuntimeEndpoint != "", "containerRuntimeEndpoint", "it must not be empty")
	if c.StaticPodURL != "" {
		u, err := url.Parse(c.StaticPodURL)
		l.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "staticPodURL",
			"it is not an http:// or https:// URL with a host")
	}
	for i, address := range c.ClusterDNS {
		_, err := netip.ParseAddr(address)
		l.check(err == nil, fmt.Sprintf("clusterDNS[%d]", i), "%q is not an IP address", address)
	}
	if a := c.MetricsBindAddress; a != "" {
		l.check(loopback(a), "metricsBindAddress", "%q is not the host:port of a loopback address, such as 127.0.0.1:9101: metrics are not protected", a)
	}
	if t := c.Tracing; t != nil {
		if t.Endpoint != "" {
			host, port, err := net.SplitHostPort(t.Endpoint)
			l.check(err == nil && host != "" && isPort(port), "tracing.endpoint", "%q is not a host:port, such as localhost:4317", t.Endpoint)
		}
		if n := t.SamplingRatePerMillion; n != nil {
			l.check(*n >= 0 && *n <= 1_000_000, "tracing.samplingRatePerMillion", "%d is not between 0 and 1000000", *n)
		}
	}
}

// loopback reports whether nobody but this machine reaches an address.
func loopback(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !isPort(port) {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func (c *Configuration) checkNumbers(l *faultList) {
	for _, f := range []struct {
		field string
		d     time.Duration
	}{
		{"fileCheckFrequency", c.FileCheckFrequency.Duration},
		{"httpCheckFrequency", c.HTTPCheckFrequency.Duration},
		{"runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration},
	} {
		l.check(f.d > 0, f.field, "%s is not a positive duration", f.d)
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil {
		l.check(d.Duration >= time.Second && d.Duration <= 300*time.Second, "crashLoopBackOff.maxContainerRestartPeriod", "%s is not between 1s and 300s", d.Duration)
	}
	l.check(c.MaxPods > 0, "maxPods", "%d is less than one", c.MaxPods)
	l.check(c.Logging.Format == LogText || c.Logging.Format == LogJSON, "logging.format", "%q is neither text nor json", c.Logging.Format)
	l.check(c.Logging.Verbosity >= 0 && c.Logging.Verbosity <= 10, "logging.verbosity", "%d is not between 0 and 10", c.Logging.Verbosity)
}

func (c *Configuration) checkPulls(l *faultList) {
	if n := c.MaxParallelImagePulls; n != nil {
		l.check(*n >= 1, "maxParallelImagePulls", "%d is less than one", *n)
	}
	if n := c.RegistryPullQPS; n != nil {
		l.check(*n >= 0, "registryPullQPS", "%d is less than zero", *n)
	}
	l.check(c.RegistryBurst >= 0, "registryBurst", "%d is less than zero", c.RegistryBurst)
	file, dir := c.ImageCredentialProviderConfigFile, c.ImageCredentialProviderBinDir
	l.check(file == "" || dir != "", "imageCredentialProviderConfigFile", "it needs imageCredentialProviderBinDir too")
	l.check(dir == "" || file != "", "imageCredentialProviderBinDir", "it needs imageCredentialProviderConfigFile too")
}

// Pulls returns how many pulls may run at one time, or zero when the
// configuration does not say.
func (c *Configuration) Pulls() int {
	switch {
	case c.SerializeImagePulls:
		return 1
	case c.MaxParallelImagePulls != nil:
		return int(*c.MaxParallelImagePulls)
	}
	return 0
}
