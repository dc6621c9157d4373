package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Setting is a field that a flag and an environment variable may set too.
type Setting struct {
	// Flag is the name of the flag without its dashes.
	Flag string
	// Field is the path of the field.
	Field string
	// Short is the one letter of the flag, if it has one.
	Short string
	// Number says that it is a number.
	Number bool
	// Usage says what it is, for help.
	Usage string
	// Path says that it is a path, which may be relative to the working directory
	// when it comes from a flag or a variable.
	Path bool
}

// Settings returns the flags of the fields, in the order of help.
func Settings() []Setting {
	return []Setting{
		{Flag: "root-dir", Field: "rootDirectory", Usage: "directory of the durable state and of the pods", Path: true},
		{Flag: "run-dir", Field: "runDirectory", Usage: "directory of the socket", Path: true},
		{Flag: "static-pod-path", Field: "staticPodPath", Usage: "directory of manifests, or one manifest", Path: true},
		{Flag: "static-pod-url", Field: "staticPodURL", Usage: "URL to fetch manifests from"},
		{Flag: "runtime-endpoint", Field: "containerRuntimeEndpoint", Usage: "socket of the CRI runtime"},
		{Flag: "pod-logs-dir", Field: "podLogsDir", Usage: "directory of the logs of all pods", Path: true},
		{Flag: "node-name", Field: "nodeName", Usage: "name of this node (default: the host name)"},
		{Flag: "log-format", Field: "logging.format", Usage: "format of the log: text or json"},
		{Flag: "v", Field: "logging.verbosity", Short: "v", Number: true, Usage: "log verbosity, 0 to 10"},
	}
}

// The flags that say where the configuration is.
const (
	FlagConfig    = "config"
	FlagConfigDir = "config-dir"
)

// Where the configuration is when nobody says so.
const (
	DefaultFile = "/etc/nodelet/config.yaml"
	DefaultDir  = "/etc/nodelet/config.d"
)

// envPrefix begins the variables that are ours.
const envPrefix = "NODELET_"

// Variable returns the environment variable of a flag: NODELET_ROOT_DIR for
// root-dir.
func Variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// endpointVariable is what crictl reads; our own variable is stronger.
const endpointVariable = "CONTAINER_RUNTIME_ENDPOINT"

// Sources says where a configuration is read from.
type Sources struct {
	// File is the path of the main file. One that is not required may be missing.
	File         string
	FileRequired bool
	// Dir is a directory of drop-ins: *.yaml in lexical order. One that is not
	// required may be missing.
	Dir         string
	DirRequired bool
	// Environ are variables as NAME=VALUE. An empty one counts as not set.
	Environ []string
	// Flags are the flags that were given, by name without dashes.
	Flags map[string]string
}

// Find returns the sources that flags and environment name: the file of --config
// and the drop-ins of --config-dir. Drop-ins of a file that was named are looked
// for in config.d beside it.
func Find(environ []string, flags map[string]string) Sources {
	s := Sources{File: DefaultFile, Dir: DefaultDir, Environ: environ, Flags: flags}
	env := variables(environ)
	if path, ok := named(FlagConfig, env, flags); ok {
		s.File, s.FileRequired = path, true
		s.Dir = filepath.Join(filepath.Dir(path), "config.d")
	}
	if path, ok := named(FlagConfigDir, env, flags); ok {
		s.Dir, s.DirRequired = path, true
	}
	return s
}

func named(flag string, env, flags map[string]string) (string, bool) {
	if path, given := flags[flag]; given {
		return path, true
	}
	path := env[Variable(flag)]
	return path, path != ""
}

// variables returns the variables that are set to something.
func variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && value != "" {
			out[name] = value
		}
	}
	return out
}

// overrides returns the trees of environment and flags, and what is wrong with
// them.
func (s Sources) overrides(own *schema) (env, flags *value, faults []*Error) {
	variables := variables(s.Environ)
	env, flags = object(Origin{Kind: FromEnvironment}), object(Origin{Kind: FromFlag})
	put := func(tree *value, set Setting, origin Origin, text string) {
		v, reason := textOf(text, own.at(set.Field).kind)
		if set.Path && text != "" && reason == "" {
			path, err := filepath.Abs(text)
			if err != nil {
				reason = err.Error()
			}
			v = path
		}
		if reason != "" {
			faults = append(faults, &Error{Origin: origin, Reason: reason})
			return
		}
		tree.set(set.Field, &value{origin: origin, scalar: v})
	}
	for _, set := range Settings() {
		name := Variable(set.Flag)
		if set.Field == "containerRuntimeEndpoint" && variables[name] == "" {
			name = endpointVariable
		}
		if text, ok := variables[name]; ok {
			put(env, set, Origin{Kind: FromEnvironment, Name: name}, text)
		}
		if text, ok := s.Flags[set.Flag]; ok {
			put(flags, set, Origin{Kind: FromFlag, Name: set.Flag}, text)
		}
	}
	return env, flags, faults
}

// strange names the variables that look like ours and mean nothing.
func (s Sources) strange() []string {
	known := []string{Variable(FlagConfig), Variable(FlagConfigDir)}
	for _, set := range Settings() {
		known = append(known, Variable(set.Flag))
	}
	var out []string
	for name := range variables(s.Environ) {
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		text := fmt.Sprintf("environment %s: unknown variable, it has no effect", name)
		if near := nearest(name, known); near != "" {
			text += fmt.Sprintf(" (did you mean %s?)", near)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
