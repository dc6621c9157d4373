package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

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
