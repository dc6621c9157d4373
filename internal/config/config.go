package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// MaxPods bounds the pods at one time. One beyond it waits until another has
	// ended; a smaller number ends no pod.
	MaxPods int32 `json:"maxPods,omitempty"`
	// SerializeImagePulls makes it one pull at a time, whatever
	// maxParallelImagePulls says. Its default is false, unlike the kubelet's,
	// since several pulls at a time are the default here.
	SerializeImagePulls bool `json:"serializeImagePulls,omitempty"`
	// MaxParallelImagePulls bounds the pulls at one time.
	MaxParallelImagePulls *int32 `json:"maxParallelImagePulls,omitempty"`
	// RegistryPullQPS and RegistryBurst limit how often pulls begin; what is over
	// the limit waits. Zero means no limit.
	RegistryPullQPS *int32 `json:"registryPullQPS,omitempty"`
	RegistryBurst   int32  `json:"registryBurst,omitempty"`
	// ImageCredentialProviderConfigFile and ImageCredentialProviderBinDir name the
	// CredentialProviderConfig and the directory of its programs, as the kubelet's
	// flags do. Both are given, or neither.
	ImageCredentialProviderConfigFile string `json:"imageCredentialProviderConfigFile,omitempty"`
	ImageCredentialProviderBinDir     string `json:"imageCredentialProviderBinDir,omitempty"`
	// RegistryConfigFiles are files as docker's config.json, with credentials for
	// registries. None given means rootDirectory/config.json and
	// /root/.docker/config.json; one that does not exist gives nothing.
	RegistryConfigFiles []string `json:"registryConfigFiles,omitempty"`
	// CrashLoopBackOff sets the longest restart delay.
	CrashLoopBackOff CrashLoopBackOff `json:"crashLoopBackOff,omitzero"`
	// Logging says how the agent logs.
	Logging Logging `json:"logging,omitzero"`
	// Tracing says where spans go; nil means nowhere.
	Tracing *Tracing `json:"tracing,omitempty"`
	// MetricsBindAddress is a loopback host:port that serves the metrics beside
	// the socket; empty means that only the socket does.
	MetricsBindAddress string `json:"metricsBindAddress,omitempty"`
	// EnableProfilingHandler serves /debug/pprof. Its default is false, unlike the
	// kubelet's.
	EnableProfilingHandler bool `json:"enableProfilingHandler,omitempty"`
	// EnableStateDump serves /debug/state and lets SIGUSR1 log the state.
	EnableStateDump bool `json:"enableStateDump,omitempty"`
}

// Logging configures the log.
type Logging struct {
	// Format is text or json.
	Format string `json:"format,omitempty"`
	// Verbosity is 0 to 10.
	Verbosity int32 `json:"verbosity,omitempty"`
}

// The formats of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// Tracing configures where spans go.
type Tracing struct {
	// Endpoint is the host:port of an OTLP collector over gRPC; empty means
	// localhost:4317, as for the kubelet.
	Endpoint string `json:"endpoint,omitempty"`
	// SamplingRatePerMillion is how many of a million traces are kept; nil means
	// none of those that nodelet itself begins.
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}

// CrashLoopBackOff configures the delay of restarts.
type CrashLoopBackOff struct {
	// MaxContainerRestartPeriod is the longest delay before a container is
	// started again, 1s to 300s; empty means 300s.
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
		MaxPods:                  110,
		MaxParallelImagePulls:    &pulls,
		RegistryPullQPS:          &qps,
		RegistryBurst:            10,
		Logging:                  Logging{Format: LogText},
	}
}
