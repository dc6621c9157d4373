package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// APIVersion and Kind are what a configuration file must say that it is.
const (
	APIVersion = "config.nodelet.dev/v1alpha1"
	Kind       = "NodeletConfiguration"
)

// Configuration is a NodeletConfiguration.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// RootDirectory holds the durable state and the directories of the pods.
	RootDirectory string `json:"rootDirectory,omitempty"`
	// RunDirectory holds the socket.
	RunDirectory string `json:"runDirectory,omitempty"`
	// NodeName is the name of this node; empty means the host name.
	NodeName string `json:"nodeName,omitempty"`
	// StaticPodPath is a directory of manifests, or one manifest.
	StaticPodPath string `json:"staticPodPath,omitempty"`
	// StaticPodURL is where manifests are fetched from; empty means nowhere.
	StaticPodURL string `json:"staticPodURL,omitempty"`
	// StaticPodURLHeader are the headers to fetch them with.
	StaticPodURLHeader map[string][]string `json:"staticPodURLHeader,omitempty"`
	// FileCheckFrequency and HTTPCheckFrequency are how often sources are looked
	// at when nothing told of a change.
	FileCheckFrequency metav1.Duration `json:"fileCheckFrequency,omitzero"`
	HTTPCheckFrequency metav1.Duration `json:"httpCheckFrequency,omitzero"`
	// ContainerRuntimeEndpoint is the socket of the CRI runtime.
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint,omitempty"`
	// ImageServiceEndpoint is the socket of the image service; empty means the
	// runtime's.
	ImageServiceEndpoint string `json:"imageServiceEndpoint,omitempty"`
	// RuntimeRequestTimeout bounds each call to the runtime that is not long by
	// nature.
	RuntimeRequestTimeout metav1.Duration `json:"runtimeRequestTimeout,omitzero"`
	// PodLogsDir holds the logs of all pods.
	PodLogsDir string `json:"podLogsDir,omitempty"`
	// ResolvConf is the resolver configuration that pods inherit.
	ResolvConf *string `json:"resolvConf,omitempty"`
	// ClusterDNS and ClusterDomain are for pods with dnsPolicy ClusterFirst.
	ClusterDNS    []string `json:"clusterDNS,omitempty"`
	ClusterDomain string   `json:"clusterDomain,omitempty"`
	// MaxParallelImagePulls bounds the pulls at one time.
	MaxParallelImagePulls *int32 `json:"maxParallelImagePulls,omitempty"`
	// RegistryPullQPS and RegistryBurst limit how often pulls begin; what is over
	// the limit waits. Zero means no limit.
	RegistryPullQPS *int32 `json:"registryPullQPS,omitempty"`
	RegistryBurst   int32  `json:"registryBurst,omitempty"`
	// CrashLoopBackOff sets the longest restart delay.
	CrashLoopBackOff CrashLoopBackOff `json:"crashLoopBackOff,omitzero"`
}

// CrashLoopBackOff configures the delay of restarts.
type CrashLoopBackOff struct {
	MaxContainerRestartPeriod *metav1.Duration `json:"maxContainerRestartPeriod,omitempty"`
}

// Default returns the configuration of an agent that was told nothing.
func Default() Configuration {
	resolvConf := "/etc/resolv.conf"
	pulls, qps := int32(4), int32(5)
	return Configuration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		RootDirectory:            "/var/lib/nodelet",
		RunDirectory:             "/run/nodelet",
		StaticPodPath:            "/etc/nodelet/manifests",
		FileCheckFrequency:       metav1.Duration{Duration: 20 * time.Second},
		HTTPCheckFrequency:       metav1.Duration{Duration: 20 * time.Second},
		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		RuntimeRequestTimeout:    metav1.Duration{Duration: 2 * time.Minute},
		PodLogsDir:               "/var/log/pods",
		ResolvConf:               &resolvConf,
		ClusterDomain:            "cluster.local",
		MaxParallelImagePulls:    &pulls,
		RegistryPullQPS:          &qps,
		RegistryBurst:            10,
	}
}

// Load reads a configuration file over the defaults. A file that does not exist
// gives the defaults, unless it is required.
func Load(path string, required bool) (Configuration, error) {
	c := Default()
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
		return c, nil
	case err != nil:
		return c, fmt.Errorf("cannot read the configuration: %w", err)
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return c, fmt.Errorf("cannot read the configuration %s: %w", path, err)
	}
	if kind.APIVersion != APIVersion || kind.Kind != Kind {
		return c, fmt.Errorf("cannot use the configuration %s: it must be a %s of %s, and it is a %q of %q", path, Kind, APIVersion, kind.Kind, kind.APIVersion)
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, fmt.Errorf("cannot use the configuration %s: %w", path, err)
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("cannot use the configuration %s: %w", path, err)
	}
	return c, nil
}

// Validate checks the values that an agent could not work with.
func (c *Configuration) Validate() error {
	var faults []error
	for _, f := range []struct{ field, path string }{
		{"rootDirectory", c.RootDirectory}, {"runDirectory", c.RunDirectory}, {"podLogsDir", c.PodLogsDir}, {"staticPodPath", c.StaticPodPath},
	} {
		if f.path == "" && f.field == "staticPodPath" {
			continue
		}
		if !filepath.IsAbs(f.path) {
			faults = append(faults, fmt.Errorf("%s: %q is not an absolute path", f.field, f.path))
		}
	}
	for _, f := range []struct {
		field string
		d     time.Duration
	}{
		{"fileCheckFrequency", c.FileCheckFrequency.Duration},
		{"httpCheckFrequency", c.HTTPCheckFrequency.Duration},
		{"runtimeRequestTimeout", c.RuntimeRequestTimeout.Duration},
	} {
		if f.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not a positive duration", f.field, f.d))
		}
	}
	if d := c.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil && (d.Duration < time.Second || d.Duration > 300*time.Second) {
		faults = append(faults, fmt.Errorf("crashLoopBackOff.maxContainerRestartPeriod: %s is not between 1s and 300s", d.Duration))
	}
	if c.ContainerRuntimeEndpoint == "" {
		faults = append(faults, errors.New("containerRuntimeEndpoint: it must not be empty"))
	}
	if n := c.MaxParallelImagePulls; n != nil && *n < 1 {
		faults = append(faults, fmt.Errorf("maxParallelImagePulls: %d is less than one", *n))
	}
	if n := c.RegistryPullQPS; n != nil && *n < 0 {
		faults = append(faults, fmt.Errorf("registryPullQPS: %d is less than zero", *n))
	}
	if n := c.RegistryBurst; n < 0 {
		faults = append(faults, fmt.Errorf("registryBurst: %d is less than zero", n))
	}
	return errors.Join(faults...)
}
