package images

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image that is on the machine, with all its names.
type Image struct {
	// ID is the digest of its configuration, as CRI has it.
	ID string `json:"id"`
	// Digest is of the manifest or the index that its first name means.
	Digest string `json:"digest"`
	// Names are with a tag, RepoDigests with a digest.
	Names       []string `json:"names"`
	RepoDigests []string `json:"repoDigests"`
	// SizeBytes is what a registry would send.
	SizeBytes int64 `json:"sizeBytes"`
	Pinned    bool  `json:"pinned"`
	// Archives are the files of the images directory that brought it.
	Archives []string `json:"archives"`
	UsedBy   []User   `json:"usedBy"`

	records []images.Image
}

// User is a container that uses an image, running or not. A sandbox has no
// container name.
type User struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// String is the pod, as namespace/name.
func (u User) String() string {
	if u.Pod == "" {
		return "a container of no pod"
	}
	return u.Namespace + "/" + u.Pod
}

// List returns the images of the machine, sorted by name.
func (c *Client) List(ctx context.Context) ([]Image, error) {
	records, err := c.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the images of containerd: %w", err)
	}
	byID := map[string]*Image{}
	idOf := map[string]string{} // by name
	for i := range records {
		id, size, err := c.measure(ctx, records[i])
		if errdefs.IsNotFound(err) {
			continue // its content is not here, or only for other platforms
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read image %s: %w", records[i].Name, err)
		}
		idOf[records[i].Name] = id
		if byID[id] == nil {
			byID[id] = &Image{ID: id, SizeBytes: size, Names: []string{}, RepoDigests: []string{}, Archives: []string{}, UsedBy: []User{}}
		}
		byID[id].add(records[i])
	}
	if err := c.addUsers(ctx, byID, idOf); err != nil {
		return nil, err
	}
	out := make([]Image, 0, len(byID))
	for _, image := range byID {
		image.sort()
		out = append(out, *image)
	}
	slices.SortFunc(out, func(a, b Image) int { return cmp.Or(cmp.Compare(a.name(), b.name()), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

func (c *Client) measure(ctx context.Context, record images.Image) (id string, size int64, err error) {
	image := containerd.NewImageWithPlatform(c.client, record, c.platform)
	config, err := image.Config(ctx)
	if err != nil {
		return "", 0, err
	}
	size, err = image.Size(ctx)
	return config.Digest.String(), size, err
}

func (i *Image) add(record images.Image) {
	i.records = append(i.records, record)
	i.Pinned = i.Pinned || record.Labels[labelPinned] == valuePinned
	i.Archives = append(i.Archives, archiveNames(record.Labels)...)
	switch {
	case record.Name == i.ID:
	case strings.Contains(record.Name, "@"):
		i.RepoDigests = append(i.RepoDigests, record.Name)
	default:
		i.Names = append(i.Names, record.Name)
	}
}

func (i *Image) sort() {
	slices.Sort(i.Names)
	slices.Sort(i.RepoDigests)
	slices.Sort(i.Archives)
	i.Archives = slices.Compact(i.Archives)
	slices.SortFunc(i.UsedBy, func(a, b User) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
	for _, r := range i.records {
		if r.Name == i.name() {
			i.Digest = r.Target.Digest.String()
		}
	}
}

// name is the first name of an image, or what it has instead.
func (i *Image) name() string {
	switch {
	case len(i.Names) > 0:
		return i.Names[0]
	case len(i.RepoDigests) > 0:
		return i.RepoDigests[0]
	}
	return i.ID
}

// addUsers adds who uses images: containers by what CRI says of them, sandboxes
// by what containerd has, since CRI does not tell the image of a sandbox.
func (c *Client) addUsers(ctx context.Context, byID map[string]*Image, idOf map[string]string) error {
	list, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("cannot list the containers of containerd: %w", err)
	}
	for _, container := range list.GetContainers() {
		ref := container.GetImageRef()
		if id, ok := idOf[ref]; ok {
			ref = id
		}
		if image := byID[ref]; image != nil {
			image.UsedBy = append(image.UsedBy, userOf(container.GetLabels()))
		}
	}
	sandboxes, err := c.client.ContainerService().List(ctx, labelSandbox)
	if err != nil {
		return fmt.Errorf("cannot list the sandboxes of containerd: %w", err)
	}
	for i := range sandboxes {
		if image := byID[idOf[sandboxes[i].Image]]; image != nil {
			image.UsedBy = append(image.UsedBy, userOf(sandboxes[i].Labels))
		}
	}
	return nil
}

func userOf(labels map[string]string) User {
	return User{
		Namespace: labels["io.kubernetes.pod.namespace"], Pod: labels["io.kubernetes.pod.name"], Container: labels["io.kubernetes.container.name"],
	}
}
