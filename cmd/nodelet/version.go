package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	apiversion "k8s.io/apimachinery/pkg/version"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/store"
)

// version is set by the build.
var version = ""

// versionInfo is what the program knows of itself, in the words of Kubernetes.
type versionInfo struct {
	apiversion.Info `json:",inline"`

	// StateFormat is the newest format of the state file that it understands.
	StateFormat int `json:"stateFormat"`
	// ConfigVersion is the apiVersion of its configuration.
	ConfigVersion string `json:"configVersion"`
}

func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Long: `Show the version of this program, of the state file that it understands and of
its configuration. It does not ask the agent: see nodelet status for that.`,
		Example: `  nodelet version
  nodelet version -o json`,
		Args: noArgs,
	}
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if out.machine() {
			return out.print(cmd.OutOrStdout(), currentVersion())
		}
		v := currentVersion()
		fmt.Fprintf(cmd.OutOrStdout(), "%s\nstate format %d, configuration %s\n", versionText(), v.StateFormat, v.ConfigVersion)
		return nil
	}
	return cmd
}

func currentVersion() versionInfo {
	v := versionInfo{
		Info: apiversion.Info{
			GitVersion: shortVersion(), GitCommit: "unknown", GitTreeState: "unknown", BuildDate: "unknown",
			GoVersion: goruntime.Version(), Compiler: goruntime.Compiler, Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
		},
		StateFormat: store.Format, ConfigVersion: config.APIVersion,
	}
	if major, rest, ok := strings.Cut(strings.TrimPrefix(v.GitVersion, "v"), "."); ok {
		v.Major = major
		v.Minor, _, _ = strings.Cut(rest, ".")
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.GitCommit = s.Value
		case s.Key == "vcs.time":
			v.BuildDate = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			v.GitTreeState = "dirty"
		case s.Key == "vcs.modified":
			v.GitTreeState = "clean"
		}
	}
	return v
}

// versionText is the version in one line.
func versionText() string {
	v := currentVersion()
	return fmt.Sprintf("nodelet %s (commit %s, %s, %s, %s)", v.GitVersion, v.GitCommit, v.BuildDate, v.GoVersion, v.Platform)
}

func shortVersion() string {
	if version == "" {
		return "v0.0.0-dev"
	}
	return version
}
