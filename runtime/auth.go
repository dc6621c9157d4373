package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/pod"
)

// Auth are credentials for a registry. They print without their secrets.
type Auth struct {
	Username      string
	Password      string
	Auth          string // base64 of "username:password"
	ServerAddress string
	IdentityToken string
	RegistryToken string
	// Source says where they come from, for messages. It is not sent.
	Source string
}

// String implements [fmt.Stringer].
func (a Auth) String() string {
	if a.Source == "" {
		return "credentials of user " + a.Username
	}
	return "credentials of " + a.Source
}

// GoString implements [fmt.GoStringer].
func (a Auth) GoString() string { return a.String() }

// MarshalJSON implements [json.Marshaler].
func (a Auth) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

func (a Auth) message() *runtimeapi.AuthConfig {
	a.Source = ""
	if a == (Auth{}) {
		return nil
	}
	return &runtimeapi.AuthConfig{
		Username: a.Username, Password: a.Password, Auth: a.Auth, ServerAddress: a.ServerAddress,
		IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
	}
}

// pullWith tries the credentials that there are for an image, one after the
// other until one works, or none at all if there are none (IMG-11, IMG-12).
// Another is tried when the registry refuses or says that there is no such
// image: it may hide the image from some. Any other failure would be the same
// for all.
func (c *Client) pullWith(ctx context.Context, name string, auths []Auth) (Image, error) {
	var lacking error
	if c.o.Credentials != nil {
		var more []Auth
		more, lacking = c.o.Credentials(ctx, name)
		auths = append(slices.Clip(auths), more...)
	}
	if ctx.Err() != nil {
		return Image{}, failed(ctx.Err(), ReasonPull, "find credentials for image %q", name)
	}
	if len(auths) == 0 {
		image, err := c.sharedPull(ctx, pullKey{image: name})
		if pod.ClassOf(err) == pod.ClassUnauthorized {
			err = refused(err, fmt.Sprintf("no credentials for registry %s are configured", registryOf(name)), lacking)
		}
		return image, err
	}
	var worst error
	var tried []string
	for _, auth := range auths {
		image, err := c.sharedPull(ctx, pullKey{image: name, auth: auth})
		class := pod.ClassOf(err)
		if err == nil || (class != pod.ClassUnauthorized && class != pod.ClassNotFound) {
			return image, err
		}
		if class == pod.ClassUnauthorized {
			tried = append(tried, auth.String())
		}
		// That there is no such image says more than that somebody may not see it.
		if worst == nil || class == pod.ClassNotFound {
			worst = err
		}
	}
	if len(tried) == 0 {
		return Image{}, worst
	}
	return Image{}, refused(worst, fmt.Sprintf("registry %s refused the %s", registryOf(name), strings.Join(tried, ", and the ")), lacking)
}

// refused adds to the failure of a pull what is known of its credentials.
func refused(err error, what string, lacking error) error {
	if lacking != nil {
		what += "; " + lacking.Error()
	}
	return pod.Errorf(pod.ClassOf(err), pod.ReasonOf(err, ReasonPull), "%w; %s", err, what)
}

func registryOf(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.Domain(named)
}
