package credentials

import (
	"fmt"
	"strconv"

	"github.com/distribution/reference"
	"k8s.io/kubernetes/pkg/credentialprovider"
)

// entry is a credential under the registry, and maybe path, that it is for.
type entry struct {
	key  string
	auth Auth
}

// ring finds the entries for an image. Upstream's keyring does the matching and
// the order, most specific first (IMG-11). It holds no more than user names and
// passwords, so it is given the number of an entry as the user name.
type ring struct {
	auths []Auth
	keys  credentialprovider.BasicDockerKeyring
}

// newRing keeps the order of entries with the same key.
func newRing(entries []entry) *ring {
	r := &ring{}
	for i, e := range entries {
		r.auths = append(r.auths, e.auth)
		r.keys.Add(nil, credentialprovider.DockerConfig{e.key: {Username: strconv.Itoa(i)}})
	}
	return r
}

func (r *ring) lookup(repository string) []Auth {
	found, _ := r.keys.Lookup(repository)
	var out []Auth
	for _, f := range found {
		if i, err := strconv.Atoi(f.Username); err == nil && i < len(r.auths) {
			out = append(out, r.auths[i])
		}
	}
	return out
}

// repositoryOf returns the full name of an image without tag and digest, which
// is what credentials are matched with.
func repositoryOf(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("cannot look for credentials of image %q: the name is not valid: %w", image, err)
	}
	return named.Name(), nil
}
