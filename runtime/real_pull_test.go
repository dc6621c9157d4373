package runtime_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/rig"
	"nodelet.dev/nodelet/runtime"
)

func registryWith(t *testing.T, refs ...string) *rig.Registry {
	t.Helper()
	registry, err := rig.NewRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close()) })
	for _, ref := range refs {
		image, err := rig.Busybox(t.Context(), ref)
		require.NoError(t, err)
		_, err = registry.Push(t.Context(), ref, image)
		require.NoError(t, err)
	}
	return registry
}

func (r onRig) pull(ctx context.Context, image string, policy corev1.PullPolicy, auths ...runtime.Auth) (runtime.Image, error) {
	p := newPod("pulls", corev1.Container{Name: "main", Image: image, ImagePullPolicy: policy})
	return r.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0], Auths: auths})
}

// TestRealPullPolicies: IMG-1 to IMG-4.
func TestRealPullPolicies(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			ctx := t.Context()
			registry := registryWith(t, "shop/web:1", "shop/web:latest")
			web := registry.Address() + "/shop/web"

			_, err := r.pull(ctx, web+":1", corev1.PullNever)
			require.Equal(t, runtime.ReasonNeverPull, pod.ReasonOf(err, ""))
			require.Zero(t, registry.Pulls("shop/web:1"))

			first, err := r.pull(ctx, web+":1", corev1.PullIfNotPresent)
			require.NoError(t, err)
			require.False(t, first.Present)
			require.Positive(t, first.SizeBytes)
			require.Positive(t, first.Took)
			require.Equal(t, 1, registry.Pulls("shop/web:1"))

			second, err := r.pull(ctx, web+":1", "")
			require.NoError(t, err)
			require.True(t, second.Present)
			require.Equal(t, first.Ref, second.Ref)
			require.Equal(t, 1, registry.Pulls("shop/web:1"))
			_, err = r.pull(ctx, web+":1", corev1.PullNever)
			require.NoError(t, err)

			_, err = r.pull(ctx, web+":1", corev1.PullAlways)
			require.NoError(t, err)
			require.Equal(t, 2, registry.Pulls("shop/web:1"))

			for range 2 { // no tag means latest, which is always asked for
				_, err = r.pull(ctx, web, "")
				require.NoError(t, err)
			}
			require.Equal(t, 2, registry.Pulls("shop/web:latest"))
		})
	}
}

// TestRealPullErrors: what a user can do differs, so the classes do.
func TestRealPullErrors(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			registry := registryWith(t, "shop/private:1", "shop/hidden:1")
			registry.Protect("shop/private", "user", "secret")
			registry.Hide("shop/hidden")
			var listen net.ListenConfig
			closed, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			nobody := closed.Addr().String()
			require.NoError(t, closed.Close())

			for _, test := range []struct {
				name, image, reason string
				class               pod.Class
			}{
				{"no such repository", registry.Address() + "/shop/absent:1", runtime.ReasonPull, pod.ClassNotFound},
				{"no such manifest", registry.Address() + "/shop/hidden:1", runtime.ReasonPull, pod.ClassNotFound},
				{"credentials wanted", registry.Address() + "/shop/private:1", runtime.ReasonPull, pod.ClassUnauthorized},
				{"nobody there", nobody + "/shop/web:1", runtime.ReasonRegistry, pod.ClassUnavailable},
				{"no such host", "registry.invalid/shop/web:1", runtime.ReasonRegistry, pod.ClassUnavailable},
				{"bad name", "Shop//web:1", runtime.ReasonInvalidImage, pod.ClassInvalid},
			} {
				t.Run(test.name, func(t *testing.T) {
					_, err := r.pull(t.Context(), test.image, corev1.PullAlways)
					require.Equal(t, test.class, pod.ClassOf(err), "%v", err)
					require.Equal(t, test.reason, pod.ReasonOf(err, ""), "%v", err)
					require.Contains(t, err.Error(), test.image)
				})
			}
			_, err = r.pull(t.Context(), registry.Address()+"/shop/private:1", corev1.PullAlways, runtime.Auth{Username: "user", Password: "secret"})
			require.NoError(t, err)
		})
	}
}

// TestRealPullShared: Q-22. Many want one image; one of them gives up, and the
// others get it from one pull.
func TestRealPullShared(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			registry := registryWith(t, "shop/big:1")
			registry.Stall("shop/big")
			image := registry.Address() + "/shop/big:1"
			impatient, giveUp := context.WithCancel(t.Context())
			const callers = 5
			errs := make([]error, callers)
			var wanting sync.WaitGroup
			gaveUp := make(chan struct{})
			for i := range callers {
				ctx := t.Context()
				if i == 0 {
					ctx = impatient
				}
				wanting.Go(func() {
					_, errs[i] = r.pull(ctx, image, corev1.PullIfNotPresent)
					if i == 0 {
						close(gaveUp)
					}
				})
				require.Eventually(t, func() bool { return r.Waiting(image) == i+1 }, patience, time.Millisecond)
			}
			giveUp()
			<-gaveUp
			registry.Resume("shop/big")
			wanting.Wait()
			require.Equal(t, pod.ClassCancelled, pod.ClassOf(errs[0]), "%v", errs[0])
			for _, err := range errs[1:] {
				require.NoError(t, err)
			}
			require.Equal(t, 1, registry.Pulls("shop/big:1"))
		})
	}
}

// TestRealPullAbandoned: when nobody wants the image any more its pull ends, and
// the next one starts anew.
func TestRealPullAbandoned(t *testing.T) {
	for _, flavor := range flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			r := newRig(t, flavor)
			registry := registryWith(t, "shop/big:1")
			registry.Stall("shop/big")
			image := registry.Address() + "/shop/big:1"
			ctx, giveUp := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := r.pull(ctx, image, corev1.PullIfNotPresent)
				ended <- err
			}()
			require.Eventually(t, func() bool { return registry.Pulls("shop/big:1") == 1 }, patience, time.Millisecond)
			r.calls.take()
			giveUp()
			require.Equal(t, pod.ClassCancelled, pod.ClassOf(<-ended))
			// The call to the runtime returns though the registry still stalls.
			seen := map[string]int{}
			require.Eventually(t, func() bool {
				for op, n := range r.calls.take() {
					seen[op] += n
				}
				return seen["PullImage"] == 1
			}, patience, time.Millisecond)
			registry.Resume("shop/big")
			_, err := r.pull(t.Context(), image, corev1.PullIfNotPresent)
			require.NoError(t, err)
		})
	}
}
