package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImportOptions say how to import an archive.
type ImportOptions struct {
	// Name is for an image that has no name in the archive, or only a tag: a
	// repository, with a tag or not.
	Name string
	// Pin keeps the images from being collected.
	Pin bool
	// Archive, if set, is remembered in the images: see Client.Archives.
	Archive *Archive
}

// Imported is an image that was imported.
type Imported struct {
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"sizeBytes"`
	Pinned    bool   `json:"pinned"`
}

// Import imports an archive that is an OCI layout or what docker save writes, as
// a tar, plain or compressed with gzip or zstd, and unpacks its images for this
// platform. When it returns, CRI shows them. The error is an *ArchiveError when
// the archive is at fault; then nothing has changed.
func (c *Client) Import(ctx context.Context, r io.Reader, o ImportOptions) (imported []Imported, err error) {
	if o.Name != "" {
		if _, err := reference.ParseNormalizedNamed(o.Name); err != nil {
			return nil, fmt.Errorf("cannot import under the name %q: %w", o.Name, err)
		}
	}
	ctx, release, err := c.client.WithLease(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot import: no lease from containerd: %w", err)
	}
	defer func() {
		// The lease ends by itself; when ctx is over it cannot be given back.
		if failure := release(ctx); failure != nil && err == nil {
			err = fmt.Errorf("cannot give the lease of the import back: %w", failure)
		}
	}()
	from := &source{reader: r}
	named, err := c.load(ctx, from, o.Name)
	if err != nil {
		return nil, err
	}
	for i := range named {
		if err := c.unpack(ctx, named[i]); err != nil {
			return nil, importFailed(fmt.Errorf("%s: %w", named[i].Name, err), from)
		}
	}
	for i := range named {
		done, err := c.name(ctx, named[i], o, len(named))
		if err != nil {
			return imported, err
		}
		imported = append(imported, done)
	}
	return imported, c.awaitShown(ctx, named)
}

// load writes the content of an archive into the store and returns its images
// with their names. Nothing but the lease holds the content yet.
func (c *Client) load(ctx context.Context, from *source, name string) ([]images.Image, error) {
	plain, err := compression.DecompressStream(from)
	if err != nil {
		return nil, importFailed(err, from)
	}
	defer func() { _ = plain.Close() }()
	decompressed := &source{reader: plain}
	store := c.client.ContentStore()
	index, err := archive.ImportIndex(ctx, store, decompressed)
	if err == nil {
		// The checksum of a compressed archive comes after the end of the tar.
		_, err = io.Copy(io.Discard, decompressed)
	}
	if from.err == nil {
		from = decompressed
	}
	if err != nil {
		return nil, importFailed(err, from)
	}
	text, err := content.ReadBlob(ctx, store, index)
	if err != nil {
		return nil, importFailed(err, from)
	}
	var list ocispec.Index
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, badArchive("cannot import: the archive's index.json is not valid: %w", err)
	}
	named, err := c.choose(ctx, list.Manifests, name)
	if err != nil {
		return nil, err
	}
	// Blobs hold their children from here on: what has a name holds all of it.
	handler := images.FilterPlatforms(images.ChildrenHandler(store), c.platform)
	handler = images.SetChildrenLabels(store, handler)
	for i := range named {
		if err := images.WalkNotEmpty(ctx, handler, named[i].Target); err != nil {
			return nil, importFailed(fmt.Errorf("%s: %w", named[i].Name, err), from)
		}
	}
	return named, nil
}

// choose names the images of an archive that this machine can run.
func (c *Client) choose(ctx context.Context, manifests []ocispec.Descriptor, base string) ([]images.Image, error) {
	store := c.client.ContentStore()
	var out []images.Image
	var others []string
	for _, m := range manifests {
		if m.Annotations[mediaUnknown] != "" {
			continue // an attestation
		}
		has, err := images.Platforms(ctx, store, m)
		if err != nil {
			return nil, importFailed(fmt.Errorf("image %s: %w", m.Digest, err), &source{})
		}
		if !slices.ContainsFunc(has, c.platform.Match) && len(has) > 0 {
			for _, p := range has {
				others = append(others, platforms.Format(p))
			}
			continue
		}
		name, err := nameOf(m, base)
		if err != nil {
			return nil, err
		}
		// A name that stands there twice means the better platform.
		if !slices.ContainsFunc(out, func(i images.Image) bool { return i.Name == name }) {
			m.Annotations = nil
			out = append(out, images.Image{Name: name, Target: m})
		}
	}
	if len(out) == 0 && len(others) == 0 {
		return nil, badArchive("cannot import: there is no image in the archive")
	}
	if len(out) == 0 {
		slices.Sort(others)
		return nil, badArchive("cannot import: this machine is %s, and the archive has images for %s alone",
			platforms.Format(platforms.DefaultSpec()), strings.Join(slices.Compact(others), ", "))
	}
	return out, nil
}

// nameOf returns the full name of an image of an archive. OCI layouts carry a
// whole name, only a tag, or nothing, depending on who wrote them.
func nameOf(m ocispec.Descriptor, base string) (string, error) {
	name := m.Annotations[images.AnnotationImageName]
	if name == "" {
		name = m.Annotations[ocispec.AnnotationRefName]
	}
	if strings.ContainsAny(name, "/:@") {
		full, err := reference.ParseDockerRef(name)
		if err != nil {
			return "", badArchive("cannot import: the archive names an image %q: %w", name, err)
		}
		return full.String(), nil
	}
	if base == "" {
		what := fmt.Sprintf("image %s of the archive has no name", m.Digest)
		if name != "" {
			what = fmt.Sprintf("image %s of the archive has a tag, %q, and no repository", m.Digest, name)
		}
		return "", badArchive("cannot import: %s; name it with --name REPOSITORY:TAG, or write the archive with its name", what)
	}
	named, err := reference.ParseNormalizedNamed(base)
	if err != nil {
		return "", fmt.Errorf("cannot import under the name %q: %w", base, err)
	}
	if reference.IsNameOnly(named) && name != "" {
		tagged, err := reference.WithTag(named, name)
		if err != nil {
			return "", badArchive("cannot import: the archive has a tag %q: %w", name, err)
		}
		return tagged.String(), nil
	}
	return reference.TagNameOnly(named).String(), nil
}

// unpack makes the image's root file system for CRI's snapshotter, which also
// checks its layers.
func (c *Client) unpack(ctx context.Context, i images.Image) error {
	return containerd.NewImageWithPlatform(c.client, i, c.platform).Unpack(ctx, c.snapshotter)
}

// name gives an image its name, which makes it exist for everybody. Labels of an
// image that has the name already are kept: a pin belongs to the name. CRI's own
// label is left to CRI, which does what else it needs when the label is missing.
func (c *Client) name(ctx context.Context, i images.Image, o ImportOptions, count int) (Imported, error) {
	fields := []string{"target"}
	i.Labels = map[string]string{}
	if o.Pin {
		i.Labels[labelPinned] = valuePinned
	}
	if o.Archive != nil {
		i.Labels[o.Archive.label()] = o.Archive.value(count)
	}
	for key := range i.Labels {
		fields = append(fields, "labels."+key)
	}
	store := c.client.ImageService()
	stored, err := store.Update(ctx, i, fields...)
	if errdefs.IsNotFound(err) {
		stored, err = store.Create(ctx, i)
	}
	if err != nil {
		return Imported{}, fmt.Errorf("cannot name the imported image %s: %w", i.Name, err)
	}
	size, err := containerd.NewImageWithPlatform(c.client, stored, c.platform).Size(ctx)
	if err != nil {
		return Imported{}, fmt.Errorf("cannot measure the imported image %s: %w", i.Name, err)
	}
	return Imported{Name: i.Name, Digest: i.Target.Digest.String(), SizeBytes: size, Pinned: stored.Labels[labelPinned] == valuePinned}, nil
}

// awaitShown waits until CRI, which learns of images from events, shows them.
func (c *Client) awaitShown(ctx context.Context, named []images.Image) error {
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	for i := range named {
		for {
			shown, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: named[i].Name}})
			if err == nil && shown.GetImage() != nil {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("cannot use image %s yet: containerd has it, and its CRI service does not show it", named[i].Name), err)
			case <-time.After(showPeriod):
			}
		}
	}
	return nil
}
