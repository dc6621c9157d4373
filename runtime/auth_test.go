package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/runtime"
	"nodelet.dev/nodelet/runtime/fakecri"
)

func good(source string) runtime.Auth {
	return runtime.Auth{Username: "u", Password: "right", Source: source}
}

func wrong(source string) runtime.Auth {
	return runtime.Auth{Username: "u", Password: "hunter2", Source: source}
}

// TestPullCredentials: IMG-11 and IMG-12. The pod's credentials come first, then
// the node's, until one works; what was refused is told without the secret.
func TestPullCredentials(t *testing.T) {
	const image = "r.example.com/shop/web:1"
	plugin := errors.New("cannot ask credential provider helper: exit status 1")
	for _, test := range []struct {
		name  string
		pod   []runtime.Auth
		node  []runtime.Auth
		err   error
		calls int
		class pod.Class
		want  string
	}{
		{name: "the pod's", pod: []runtime.Auth{good("a")}, node: []runtime.Auth{wrong("b")}, calls: 1},
		{name: "the node's", node: []runtime.Auth{good("b")}, calls: 1},
		{name: "the second", pod: []runtime.Auth{wrong("a")}, node: []runtime.Auth{good("b")}, calls: 2},
		{name: "in spite of an error", node: []runtime.Auth{good("b")}, err: plugin, calls: 1},
		{
			name: "none", calls: 1, class: pod.ClassUnauthorized,
			want: "; no credentials for registry r.example.com are configured",
		},
		{
			name: "none for an error", err: plugin, calls: 1, class: pod.ClassUnauthorized,
			want: "; no credentials for registry r.example.com are configured; cannot ask credential provider helper: exit status 1",
		},
		{
			name: "all wrong", pod: []runtime.Auth{wrong("secret shop/key")}, node: []runtime.Auth{wrong("/etc/c.json")}, calls: 2, class: pod.ClassUnauthorized,
			want: "401 Unauthorized; registry r.example.com refused the credentials of secret shop/key, and the credentials of /etc/c.json",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			registry := fakecri.Options{Images: []fakecri.Image{{Ref: image, Username: "u", Password: "right"}}}
			inBubble(t, registry, runtime.Options{
				Credentials: func(_ context.Context, name string) ([]runtime.Auth, error) {
					require.Equal(t, image, name)
					return test.node, test.err
				},
			}, func(f fake) {
				p := newPod("pulls", corev1.Container{Name: "main", Image: image, ImagePullPolicy: corev1.PullAlways})
				_, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0], Auths: test.pod})
				require.Equal(f, test.calls, f.count("PullImage"))
				require.Equal(f, test.class, pod.ClassOf(err), "%v", err)
				if err != nil {
					require.Equal(f, runtime.ReasonPull, pod.ReasonOf(err, ""))
					require.ErrorContains(f, err, fmt.Sprintf("cannot pull image %q: ", image))
					require.ErrorContains(f, err, test.want)
					require.NotContains(f, err.Error(), "hunter2")
				}
			})
		})
	}
}

// TestPullCredentialsOfOthers: a failure that has nothing to do with credentials
// is not tried again with others, but that an image is not found is: a registry
// may hide it.
func TestPullCredentialsOfOthers(t *testing.T) {
	for _, test := range []struct {
		code  codes.Code
		class pod.Class
		calls int
	}{
		{codes.NotFound, pod.ClassNotFound, 2},
		{codes.Unavailable, pod.ClassUnavailable, 1},
	} {
		image := fakecri.Image{Ref: "r.example.com/web:1", PullError: status.Error(test.code, "so it is")}
		inBubble(t, fakecri.Options{Images: []fakecri.Image{image}}, runtime.Options{
			Credentials: func(context.Context, string) ([]runtime.Auth, error) {
				return []runtime.Auth{wrong("a"), wrong("b")}, nil
			},
		}, func(f fake) {
			_, err := f.pull(f.Context(), image.Ref)
			require.Equal(f, test.class, pod.ClassOf(err), "%v", err)
			require.NotContains(f, err.Error(), "refused")
			require.Equal(f, test.calls, f.count("PullImage"))
		})
	}
}

// TestPullCredentialsGiveUp: whoever waits for credentials can leave.
func TestPullCredentialsGiveUp(t *testing.T) {
	inBubble(t, fakecri.Options{PullAny: true}, runtime.Options{
		Credentials: func(ctx context.Context, _ string) ([]runtime.Auth, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, func(f fake) {
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		_, err := f.pull(ctx, "app:1")
		require.Equal(f, pod.ClassDeadline, pod.ClassOf(err), "%v", err)
		require.Zero(f, f.count("PullImage"))
	})
}

// TestPullArriving: a missing image is waited for while images arrive, and no
// longer than a minute; one that is there waits for nothing.
func TestPullArriving(t *testing.T) {
	var server *fakecri.Server
	rounds := 0
	arriving := func(ctx context.Context) bool {
		rounds++
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return false
		}
		if rounds == 2 {
			server.SetImage(fakecri.Image{Ref: "app:1", Present: true})
		}
		return true
	}
	inBubble(t, fakecri.Options{Images: []fakecri.Image{{Ref: "there:1", Present: true}}}, runtime.Options{Arriving: arriving}, func(f fake) {
		server = f.server
		get := func(image string, policy corev1.PullPolicy) error {
			p := newPod("pulls", corev1.Container{Name: "main", Image: image, ImagePullPolicy: policy})
			_, err := f.PullImage(f.Context(), runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
			return err
		}
		began := time.Now()
		require.NoError(f, get("there:1", corev1.PullIfNotPresent))
		require.Zero(f, rounds)
		require.NoError(f, get("app:1", corev1.PullNever))
		require.Equal(f, 20*time.Second, time.Since(began))
		require.Equal(f, runtime.ReasonNeverPull, pod.ReasonOf(get("other:1", corev1.PullNever), ""))
		require.Equal(f, 80*time.Second, time.Since(began))
		require.Zero(f, f.count("PullImage"))
	})
}

// TestAuthDoesNotPrint covers the ways in which values reach logs.
func TestAuthDoesNotPrint(t *testing.T) {
	a := runtime.Auth{Username: "u", Password: "hunter2", Auth: "hunter2", IdentityToken: "hunter2", RegistryToken: "hunter2"}
	text, err := json.Marshal([]any{a, &a})
	require.NoError(t, err)
	for _, s := range []string{string(text), fmt.Sprintf("%v %+v %#v %s %q", a, a, a, a, a), fmt.Sprintf("%v %+v %#v", &a, []runtime.Auth{a}, []*runtime.Auth{&a})} {
		require.NotContains(t, s, "hunter2")
	}
	require.Equal(t, "credentials of user u", a.String())
}
