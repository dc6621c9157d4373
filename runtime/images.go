package runtime

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime/convert"
)

// arrivalTimeout is how long a pull stands back for images that are on their way
// without a registry.
const arrivalTimeout = time.Minute

// ImageRequest asks for the image of a container.
type ImageRequest struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	// Auths are the pod's own credentials for the registry, in the order in which
	// to try them. Those of the node come after them (IMG-11).
	Auths []Auth
	// Pulling, if set, is called once before a registry is asked.
	Pulling func()
}

// Image is an image that is on the machine.
type Image struct {
	// Ref is what the runtime resolved the name to; it never means other content.
	Ref       string
	SizeBytes int64
	// Took is how long the pull itself took, Waited how long it stood in line.
	Took, Waited time.Duration
	// Present says that nothing was pulled.
	Present bool
	// UserUID and Username say whom the image runs as: a number, else a name,
	// else root.
	UserUID  *int64
	Username string
}

// PullImage makes sure that a container's image is on the machine, as its pull
// policy says (IMG-1 to IMG-5), with the credentials that there are for it
// (IMG-11, IMG-12). Callers that want the same image with the same credentials
// share one pull, which ends early only when all of them gave up.
func (c *Client) PullImage(ctx context.Context, r ImageRequest) (Image, error) {
	name, err := imageWithTag(r.Container.Image)
	if err != nil {
		return Image{}, pod.Errorf(pod.ClassInvalid, ReasonInvalidImage, "cannot use image %q of container %s of pod %s: %w",
			r.Container.Image, r.Container.Name, pod.KeyOf(r.Pod), err)
	}
	policy := pullPolicy(r.Container.ImagePullPolicy, name)
	if policy != corev1.PullAlways {
		image, found, err := c.awaitImage(ctx, name)
		if err != nil {
			return Image{}, failed(err, ReasonInspectImage, "look up image %q", name)
		}
		if found {
			image.Present = true
			return image, nil
		}
		if policy == corev1.PullNever {
			return Image{}, pod.Errorf(pod.ClassNotFound, ReasonNeverPull,
				"cannot use image %q: it is not on this machine, and its pull policy is Never", name)
		}
	}
	if r.Pulling != nil {
		r.Pulling()
	}
	return c.pullWith(ctx, name, r.Auths)
}

// awaitImage looks an image up, again and again while images arrive without a
// registry.
func (c *Client) awaitImage(ctx context.Context, name string) (Image, bool, error) {
	image, found, err := c.imageStatus(ctx, name)
	if err != nil || found || c.o.Arriving == nil {
		return image, found, err
	}
	wait, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	for !found && err == nil && c.o.Arriving(wait) {
		image, found, err = c.imageStatus(ctx, name)
	}
	return image, found, err
}

// pull pulls for everybody who waits for the flight.
func (c *Client) pull(ctx context.Context, key pullKey) (Image, error) {
	queued := time.Now()
	if err := c.pullTurn(ctx); err != nil {
		return Image{}, failed(err, ReasonPull, "pull image %q", key.image)
	}
	defer c.pullSlots.Release(1)
	began := time.Now()
	var ref string
	err := c.call(ctx, "PullImage", func(ctx context.Context, conn *connection) (err error) {
		ref, err = conn.images.PullImage(ctx, &runtimeapi.ImageSpec{Image: key.image}, key.auth.message(), nil)
		return err
	})
	took := time.Since(began)
	if err != nil {
		class, reason := registryFailure(err)
		if class == pod.ClassCancelled && ctx.Err() == nil {
			// Nobody here cancelled, so the runtime did: the registry sent nothing
			// for too long.
			class, reason = pod.ClassUnavailable, ReasonRegistry
		}
		return Image{}, pod.Errorf(class, reason, "cannot pull image %q: %w", key.image, pullProblem(class, reason, key.image, said(err)))
	}
	image, found, err := c.imageStatus(ctx, ref)
	if err != nil {
		return Image{}, failed(err, ReasonInspectImage, "look up image %q after its pull", key.image)
	}
	if !found {
		return Image{}, pod.Errorf(pod.ClassNotFound, ReasonInspectImage, "cannot find image %q after its pull", key.image)
	}
	image.Took, image.Waited = took, began.Sub(queued)
	c.o.Pulled(took, image.SizeBytes)
	return image, nil
}

func (c *Client) imageStatus(ctx context.Context, name string) (Image, bool, error) {
	var response *runtimeapi.ImageStatusResponse
	err := c.call(ctx, "ImageStatus", func(ctx context.Context, conn *connection) (err error) {
		response, err = conn.images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name}, false)
		return err
	})
	if err != nil || response.GetImage() == nil {
		return Image{}, false, err
	}
	found := response.GetImage()
	out := Image{Ref: found.GetId(), SizeBytes: int64(min(found.GetSize(), 1<<62)), Username: found.GetUsername()}
	if uid := found.GetUid(); uid != nil {
		value := uid.GetValue()
		out.UserUID = &value
	}
	c.images.keep(out.Ref, convert.ImageUser{UID: out.UserUID, Name: out.Username})
	return out, true, nil
}

// imageUser returns whom an image runs as. A reference never means other
// content, so it is asked for once.
func (c *Client) imageUser(ctx context.Context, ref string) (convert.ImageUser, error) {
	if user, ok := c.images.get(ref); ok {
		return user, nil
	}
	image, found, err := c.imageStatus(ctx, ref)
	if err != nil {
		return convert.ImageUser{}, failed(err, ReasonInspectImage, "look up image %q", ref)
	}
	if !found {
		return convert.ImageUser{}, pod.Errorf(pod.ClassNotFound, ReasonCreateContainer, "cannot use image %q: it is not on this machine", ref)
	}
	return convert.ImageUser{UID: image.UserUID, Name: image.Username}, nil
}

// imageWithTag checks an image name and adds the tag that is meant when there is
// neither tag nor digest. The name is not normalised otherwise (IMG-1): the
// runtime resolves short names by its own rules.
func imageWithTag(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("the name is not valid: %w", err)
	}
	if reference.IsNameOnly(named) {
		return name + ":latest", nil
	}
	return name, nil
}

func pullPolicy(policy corev1.PullPolicy, name string) corev1.PullPolicy {
	if policy != "" {
		return policy
	}
	if named, err := reference.ParseNormalizedNamed(name); err == nil {
		if tagged, ok := named.(reference.Tagged); ok && tagged.Tag() == "latest" {
			return corev1.PullAlways
		}
	}
	return corev1.PullIfNotPresent
}

// maxImageUsers limits what is remembered of images.
const maxImageUsers = 1000

// imageUsers remembers whom images run as, by reference. Its mutex guards the
// map for a few lines.
type imageUsers struct {
	mu    sync.Mutex
	users map[string]convert.ImageUser
}

func newImageUsers() *imageUsers { return &imageUsers{users: map[string]convert.ImageUser{}} }

func (u *imageUsers) get(ref string) (convert.ImageUser, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	user, ok := u.users[ref]
	return user, ok
}

func (u *imageUsers) keep(ref string, user convert.ImageUser) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.users) >= maxImageUsers {
		clear(u.users) // asking again is cheap; being clever is not
	}
	u.users[ref] = user
}
