package credentials

import (
	"encoding/json"
	"fmt"
)

// Auth is one credential for a registry. It prints without its secrets.
type Auth struct {
	Username      string
	Password      string
	IdentityToken string
	RegistryToken string
	// Source says where it was found: the file or the plugin, and the entry.
	Source string
}

// String implements [fmt.Stringer].
func (a Auth) String() string { return fmt.Sprintf("credentials of %s", a.Source) }

// GoString implements [fmt.GoStringer].
func (a Auth) GoString() string { return a.String() }

// MarshalJSON implements [json.Marshaler].
func (a Auth) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

func (a Auth) empty() bool {
	return a.Username == "" && a.Password == "" && a.IdentityToken == "" && a.RegistryToken == ""
}
