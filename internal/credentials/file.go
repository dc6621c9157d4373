package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// maxFile bounds a file of credentials.
const maxFile = 10 << 20

// stamp tells one version of a file from the next.
type stamp struct {
	exists bool
	size   int64
	mtime  time.Time
	mode   fs.FileMode
	// problem is why the file cannot be looked at.
	problem string
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stamp{}
	case err != nil:
		return stamp{exists: true, problem: err.Error()}
	}
	return stamp{exists: true, size: info.Size(), mtime: info.ModTime(), mode: info.Mode()}
}

// read reads a whole file of bounded size.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("the file is larger than %d bytes", maxFile)
	}
	return text, err
}

// dockerConfig is what docker login writes, as far as it is of use.
type dockerConfig struct {
	Auths       map[string]json.RawMessage `json:"auths"`
	CredsStore  string                     `json:"credsStore"`
	CredHelpers map[string]string          `json:"credHelpers"`
}

// dockerEntry is the credential of one registry.
type dockerEntry struct {
	Auth          string `json:"auth"` // base64 of "username:password"
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// readDocker returns the entries of a docker config file in the order of their
// keys. Problems are about single entries; with err nothing could be read.
func readDocker(path string) (entries []entry, problems []string, err error) {
	text, err := read(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the registry credentials: %w", err)
	}
	var c dockerConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, nil, fmt.Errorf("cannot read the registry credentials of %s: %w", path, err)
	}
	if c.CredsStore != "" || len(c.CredHelpers) > 0 {
		problems = append(problems, fmt.Sprintf(
			"cannot use credsStore and credHelpers of %s: credential helpers of docker are not supported, as in a kubelet; use a credential provider plugin or auths", path))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Auths)) {
		e, err := decodeEntry(key, c.Auths[key])
		if err != nil {
			problems = append(problems, fmt.Sprintf("cannot use auths[%q] of %s: %v", key, path, err))
			continue
		}
		// With a helper docker leaves entries that say nothing.
		if e.auth.Source = fmt.Sprintf("%s (entry %q)", path, key); !e.auth.empty() {
			entries = append(entries, e)
		}
	}
	return entries, problems, nil
}

func decodeEntry(key string, text json.RawMessage) (entry, error) {
	if _, err := url.Parse("https://" + strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")); err != nil {
		return entry{}, errors.New("the key is not a registry, such as registry.example.com:5000/team")
	}
	var d dockerEntry
	if err := json.Unmarshal(text, &d); err != nil {
		return entry{}, err
	}
	if d.Auth != "" {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(d.Auth), "="))
		if err != nil {
			return entry{}, errors.New("auth: it is not base64")
		}
		user, password, ok := strings.Cut(string(raw), ":")
		if !ok {
			return entry{}, errors.New("auth: it is not the base64 of username:password")
		}
		d.Username, d.Password = user, strings.TrimRight(password, "\x00")
	}
	return entry{key: key, auth: Auth{
		Username: d.Username, Password: d.Password, IdentityToken: d.IdentityToken, RegistryToken: d.RegistryToken,
	}}, nil
}
