package images

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
)

// Changed tells what became of an image.
type Changed struct {
	// Names are those that changed, in full.
	Names []string
	// Image is how it was before.
	Image Image
	// Gone says that the image has no name left and is off the machine.
	Gone bool
}

// Pin keeps an image from being collected: under the name that is given, or
// under all its names when an ID is given.
func (c *Client) Pin(ctx context.Context, given string) (Changed, error) {
	image, name, err := c.find(ctx, given)
	if err != nil {
		return Changed{}, err
	}
	changed := Changed{Image: *image}
	for _, r := range image.records {
		// The name that is the ID stays behind when a tag moves on: pinned, it
		// would keep the old content for ever.
		if named := r.Name != image.ID || len(image.records) == 1; named && (name == "" || r.Name == name) {
			if err := c.label(ctx, r, valuePinned); err != nil {
				return changed, fmt.Errorf("cannot pin image %s: %w", r.Name, err)
			}
			changed.Names = append(changed.Names, r.Name)
		}
	}
	return changed, nil
}

// Unpin takes the pins of an image away, whichever name they are at.
func (c *Client) Unpin(ctx context.Context, given string) (Changed, error) {
	image, _, err := c.find(ctx, given)
	if err != nil {
		return Changed{}, err
	}
	changed := Changed{Image: *image}
	for _, r := range image.records {
		if r.Labels[labelPinned] == valuePinned {
			if err := c.label(ctx, r, ""); err != nil {
				return changed, fmt.Errorf("cannot unpin image %s: %w", r.Name, err)
			}
			changed.Names = append(changed.Names, r.Name)
		}
	}
	return changed, nil
}

// label sets the pin of one name; an empty value takes it away.
func (c *Client) label(ctx context.Context, r images.Image, value string) error {
	r.Labels = map[string]string{labelPinned: value}
	_, err := c.client.ImageService().Update(ctx, r, "labels."+labelPinned)
	return err
}

// Remove takes a name from an image, and the image from the machine when that
// was its last name; an ID means all names. One that is pinned or that a
// container uses is only removed with force.
func (c *Client) Remove(ctx context.Context, given string, force bool) (Changed, error) {
	image, name, err := c.find(ctx, given)
	if err != nil {
		return Changed{}, err
	}
	if !force {
		if err := image.removable(given); err != nil {
			return Changed{}, err
		}
	}
	doomed, gone := image.without(name)
	changed := Changed{Image: *image, Gone: gone}
	for i, r := range doomed {
		var options []images.DeleteOpt
		if i == len(doomed)-1 {
			options = append(options, images.SynchronousDelete())
		}
		if err := c.client.ImageService().Delete(ctx, r, options...); err != nil && !errdefs.IsNotFound(err) {
			return changed, fmt.Errorf("cannot remove image %s: %w", r, err)
		}
		if r != image.ID {
			changed.Names = append(changed.Names, r)
		}
	}
	return changed, nil
}

func (i *Image) removable(given string) error {
	var pods []string
	for _, u := range i.UsedBy {
		pods = append(pods, u.String())
	}
	switch pods = slices.Compact(pods); {
	case len(pods) > 0:
		return fmt.Errorf("cannot remove image %q: it is used by %s; stop it first, or use --force", given, strings.Join(pods, ", "))
	case i.Pinned:
		return fmt.Errorf("cannot remove image %q: it is pinned; unpin it first (nodelet images unpin %s), or use --force", given, given)
	}
	return nil
}

// without returns the names that go when one goes, the last of them last, and
// whether none is left. Pulls leave a name with the digest beside each tag, and
// CRI one that is the ID: they go with the last name that people gave.
func (i *Image) without(name string) (doomed []string, gone bool) {
	var rest []string
	for _, r := range i.records {
		switch {
		case name == "" || r.Name == name:
			doomed = append(doomed, r.Name)
		case r.Name != i.ID:
			rest = append(rest, r.Name)
		}
	}
	if name == "" {
		return doomed, true
	}
	tagged := func(repo string) bool {
		return slices.ContainsFunc(rest, func(n string) bool { return !strings.Contains(n, "@") && repository(n) == repo })
	}
	var left []string
	for _, n := range rest {
		if strings.Contains(n, "@") && repository(n) == repository(name) && !tagged(repository(n)) {
			doomed = append(doomed, n)
		} else {
			left = append(left, n)
		}
	}
	if len(left) == 0 && slices.ContainsFunc(i.records, func(r images.Image) bool { return r.Name == i.ID }) {
		doomed = append(doomed, i.ID)
	}
	return doomed, len(left) == 0
}

func (c *Client) find(ctx context.Context, given string) (*Image, string, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, "", err
	}
	return resolve(list, given)
}
