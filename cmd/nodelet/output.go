package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Output formats beside the one for people.
const (
	outputJSON = "json"
	outputYAML = "yaml"
	outputWide = "wide"
)

// output is the -o flag of a command: empty means for people.
type output struct {
	format  string
	allowed []string
}

// addOutput gives a command its -o flag. JSON and YAML are always allowed.
func addOutput(cmd *cobra.Command, more ...string) *output {
	o := &output{allowed: append([]string{outputJSON, outputYAML}, more...)}
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(o.allowed, ", "))
	return o
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (o *output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *output) Set(format string) error {
	if !slices.Contains(o.allowed, format) {
		return fmt.Errorf("it must be one of %s", strings.Join(o.allowed, ", "))
	}
	o.format = format
	return nil
}

// machine reports whether the output is for programs.
func (o *output) machine() bool { return o.format == outputJSON || o.format == outputYAML }

// print writes a value for programs. YAML has the keys of JSON.
func (o *output) print(w io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the output: %w", err)
	}
	if o.format == outputYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("cannot encode the output: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
