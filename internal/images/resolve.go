package images

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"nodelet.dev/nodelet/internal/spelling"
)

// NotFoundError says that no image has a name.
type NotFoundError struct {
	Name string
	// Near are names of images that may be meant.
	Near []string
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("cannot find image %q on this machine", e.Name)
	if len(e.Near) > 0 {
		text += "; did you mean " + strings.Join(e.Near, " or ") + "?"
	}
	return text
}

// minID is how much of an ID must be given.
const minID = 12

var isID = regexp.MustCompile(`^(sha256:)?[0-9a-f]+$`)

// resolve finds the image that a user means: a name, as CRI completes it, or an
// ID or the beginning of one. name is empty when it was an ID.
func resolve(list []Image, given string) (image *Image, name string, err error) {
	if image, name := byName(list, given); image != nil {
		return image, name, nil
	}
	if isID.MatchString(given) {
		return byPrefix(list, strings.TrimPrefix(given, "sha256:"), given)
	}
	full, err := reference.ParseDockerRef(given)
	if err != nil {
		return nil, "", fmt.Errorf("cannot find image %q: the name is not valid: %w", given, err)
	}
	if image, name := byName(list, full.String()); image != nil {
		return image, name, nil
	}
	return nil, "", &NotFoundError{Name: given, Near: near(list, full.String())}
}

func byName(list []Image, name string) (*Image, string) {
	for i := range list {
		if slices.Contains(list[i].Names, name) || slices.Contains(list[i].RepoDigests, name) {
			return &list[i], name
		}
	}
	return nil, ""
}

// byPrefix also takes what looks like an ID and is a short name, such as cafe.
func byPrefix(list []Image, prefix, given string) (*Image, string, error) {
	var found []*Image
	for i := range list {
		if strings.HasPrefix(strings.TrimPrefix(list[i].ID, "sha256:"), prefix) {
			found = append(found, &list[i])
		}
	}
	full, err := reference.ParseDockerRef(given)
	if err == nil {
		if image, name := byName(list, full.String()); image != nil {
			return image, name, nil
		}
	}
	switch {
	case len(found) == 0:
		return nil, "", &NotFoundError{Name: given}
	case len(prefix) < minID:
		return nil, "", fmt.Errorf("cannot find image %q: give at least %d characters of an ID; did you mean %s?", given, minID, shortID(found[0].ID))
	case len(found) > 1:
		return nil, "", fmt.Errorf("cannot choose an image: %d have an ID that begins with %q", len(found), given)
	}
	return found[0], "", nil
}

// shortID is an ID as tables have it.
func shortID(id string) string {
	digest := strings.TrimPrefix(id, "sha256:")
	return digest[:min(len(digest), minID)]
}

// Bounds of the names that are proposed: how many, and how many letters off.
const (
	maxNear     = 3
	maxDistance = 3
)

// near returns names that a user may have meant: the same repository, the same
// last part of it, or a few letters apart.
func near(list []Image, want string) []string {
	type candidate struct {
		name string
		rank int
	}
	var found []candidate
	for i := range list {
		for _, name := range list[i].Names {
			rank := spelling.Distance(name, want)
			switch {
			case repository(name) == repository(want):
			case base(name) == base(want):
				rank += 1000 // behind all of the same repository
			case rank <= maxDistance:
				rank += 2000
			default:
				continue
			}
			found = append(found, candidate{name, rank})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.rank - b.rank })
	var out []string
	for _, c := range found[:min(len(found), maxNear)] {
		out = append(out, familiar(c.name))
	}
	return out
}

func repository(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return named.Name()
}

func base(name string) string {
	name = repository(name)
	return name[strings.LastIndex(name, "/")+1:]
}

// familiar is the shortest name that means the same.
func familiar(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.FamiliarString(named)
}

// IsNotFound reports whether an error says that there is no such image.
func IsNotFound(err error) bool {
	_, ok := errors.AsType[*NotFoundError](err)
	return ok
}
