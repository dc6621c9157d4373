package images_test

import (
	"bytes"
	"context"
	"os/exec"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/images"
	"nodelet.dev/nodelet/internal/rig"
)

func rigCtr(ctx context.Context, c *rig.Containerd, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, c.Ctr(), append([]string{"--address", c.Address(), "-n", "k8s.io"}, args...)...).Output()
	return string(out), err
}

func (r *onRig) load(list map[string]v1.Image) {
	r.t.Helper()
	_, err := r.Import(r.t.Context(), bytes.NewReader(docker(r.t, list)), images.ImportOptions{})
	require.NoError(r.t, err)
}

func (r *onRig) awaitPinned(name string, want bool) {
	r.t.Helper()
	require.Equal(r.t, want, r.image(name).Pinned)
	if r.hasPins() {
		require.Eventually(r.t, func() bool { return r.shown(name).GetPinned() == want }, patience, showPause)
	}
}

func (r *onRig) awaitGone(name string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.shown(name) == nil }, patience, showPause)
}

const showPause = 1e7 // 10 ms

// TestRealPins: a pin is at a name, CRI shows it where it can, and it is no
// hindrance to a pull.
func TestRealPins(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		same := build(t, "one")
		r.load(map[string]v1.Image{"site.local/a:1": same, "site.local/b:1": same, "short:1": build(t, "two")})
		r.awaitPinned("site.local/a:1", false)
		changed, err := r.Pin(t.Context(), "site.local/a:1")
		require.NoError(t, err)
		require.Equal(t, []string{"site.local/a:1"}, changed.Names)
		r.awaitPinned("site.local/a:1", true)
		changed, err = r.Pin(t.Context(), "short:1")
		require.NoError(t, err)
		require.Equal(t, []string{"docker.io/library/short:1"}, changed.Names)
		changed, err = r.Unpin(t.Context(), "site.local/b:1")
		require.NoError(t, err)
		require.Equal(t, []string{"site.local/a:1"}, changed.Names, "the pin of the image, whichever name it is at")
		r.awaitPinned("site.local/a:1", false)
		id := r.image("site.local/a:1").ID
		changed, err = r.Pin(t.Context(), id[len("sha256:"):len("sha256:")+12])
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"site.local/a:1", "site.local/b:1"}, changed.Names)
		changed, err = r.Unpin(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, changed.Names, 2)
		changed, err = r.Unpin(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, changed.Names, "nothing was pinned")
	})
}

// TestRealRemove: names go one by one, and the image with the last; what is
// pinned or used stays unless it is forced.
func TestRealRemove(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		ctx := t.Context()
		same := build(t, "one")
		r.load(map[string]v1.Image{"site.local/a:1": same, "site.local/b:1": same, "site.local/used:1": build(t, "two"), "site.local/pinned:1": build(t, "three")})
		_, err := r.Remove(ctx, "site.local/c:1", false)
		require.ErrorContains(t, err, `cannot find image "site.local/c:1" on this machine; did you mean site.local/a:1 or site.local/b:1?`)
		require.True(t, images.IsNotFound(err))

		changed, err := r.Remove(ctx, "site.local/a:1", false)
		require.NoError(t, err)
		require.Equal(t, []string{"site.local/a:1"}, changed.Names)
		require.False(t, changed.Gone)
		r.awaitGone("site.local/a:1")
		require.NoError(t, r.use("site.local/b:1"))
		changed, err = r.Remove(ctx, "site.local/b:1", false)
		require.NoError(t, err)
		require.True(t, changed.Gone)
		r.awaitGone("site.local/b:1")
		r.awaitGone(changed.Image.ID)
		require.NotContains(t, ctr(t, r.containerd, "images", "ls", "-q"), changed.Image.ID)
		require.NotContains(t, ctr(t, r.containerd, "content", "ls", "-q"), changed.Image.Digest, "its content went with it")

		_, err = r.Pin(ctx, "site.local/pinned:1")
		require.NoError(t, err)
		_, err = r.Remove(ctx, "site.local/pinned:1", false)
		require.ErrorContains(t, err, "it is pinned; unpin it first (nodelet images unpin site.local/pinned:1), or use --force")
		changed, err = r.Remove(ctx, r.image("site.local/pinned:1").ID, true)
		require.NoError(t, err)
		require.True(t, changed.Gone)

		r.run("web", "site.local/used:1")
		_, err = r.Remove(ctx, "site.local/used:1", false)
		require.ErrorContains(t, err, `cannot remove image "site.local/used:1": it is used by shop/web; stop it first, or use --force`)
		_, err = r.Remove(ctx, rig.PauseImage, false)
		require.ErrorContains(t, err, "it is used by shop/web")
		_, err = r.Remove(ctx, "site.local/used:1", true)
		require.NoError(t, err)
		r.awaitGone("site.local/used:1")
	})
}

// TestRealRemovePulled: a pull leaves three names behind, and rm takes all.
func TestRealRemovePulled(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		registry, err := rig.NewRegistry(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, registry.Close()) })
		full, err := registry.Push(t.Context(), "shop/web:1", build(t, "p1"))
		require.NoError(t, err)
		_, err = r.cri.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: full}})
		require.NoError(t, err)
		image := r.image(full)
		require.Len(t, image.RepoDigests, 1)
		_, err = r.Pin(t.Context(), image.RepoDigests[0])
		require.NoError(t, err)
		changed, err := r.Remove(t.Context(), full, true)
		require.NoError(t, err)
		require.True(t, changed.Gone)
		require.ElementsMatch(t, []string{full, image.RepoDigests[0]}, changed.Names)
		r.awaitGone(full)
		r.awaitGone(image.ID)
	})
}
