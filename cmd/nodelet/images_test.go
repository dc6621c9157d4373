package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"nodelet.dev/nodelet/internal/images"
	"nodelet.dev/nodelet/internal/rig"
)

// TestPrintImages: the tables of images that scripts do not make.
func TestPrintImages(t *testing.T) {
	id := "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	list := []images.Image{
		{ID: id, Digest: "sha256:d", Names: []string{"r.io:5000/a/web:1", "r.io:5000/a/web:2"}, SizeBytes: 12_345_678, Pinned: true, Archives: []string{"a.tar"}, UsedBy: []images.User{
			{Namespace: "shop", Pod: "web", Container: "main"}, {Namespace: "shop", Pod: "web", Container: "side"}, {Namespace: "shop", Pod: "db", Container: "main"}, {Namespace: "shop", Pod: "x"},
		}},
		{ID: id, Digest: "sha256:e", RepoDigests: []string{"r.io/b@sha256:e"}, SizeBytes: 999},
		{ID: id, Digest: "sha256:f", SizeBytes: 1_500_000_000},
	}
	var out bytes.Buffer
	require.NoError(t, printImages(&out, list, false))
	require.Equal(t, `IMAGE             TAG      IMAGE ID       SIZE     PINNED   USED BY
r.io:5000/a/web   1        0123456789ab   12.3MB   yes      shop/db, shop/web and 1 more
r.io:5000/a/web   2        0123456789ab   12.3MB   yes      shop/db, shop/web and 1 more
r.io/b            <none>   0123456789ab   999B     no       <none>
<none>            <none>   0123456789ab   1.5GB    no       <none>
`, out.String())
	out.Reset()
	require.NoError(t, printImages(&out, list[:1], true))
	require.Contains(t, out.String(), "shop/db, shop/web, shop/x   sha256:d   a.tar\n")
	out.Reset()
	require.NoError(t, printImages(&out, nil, false))
	require.Equal(t, "no images\n", out.String())
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1kB", 999_499: "999kB", 999_500: "1MB", 1_234_567: "1.23MB", 5e12: "5TB", 5e15: "5PB"} {
		require.Equal(t, want, size(bytes))
	}
}

// dockerArchive writes what docker save writes.
func dockerArchive(t require.TestingT, path, ref string, image v1.Image) {
	tag, err := name.NewTag(ref)
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(path, tag, image))
}

// ociArchive writes an OCI layout; an empty ref leaves the image without a name.
func ociArchive(t require.TestingT, path, dir, ref string, image v1.Image) {
	p, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	annotations := map[string]string{}
	if ref != "" {
		annotations["org.opencontainers.image.ref.name"] = ref
	}
	require.NoError(t, p.AppendImage(image, layout.WithAnnotations(annotations)))
	file, err := os.Create(path)
	require.NoError(t, err)
	w := tar.NewWriter(file)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
}

func busybox(t *testing.T, version string) v1.Image {
	t.Helper()
	image, err := rig.Busybox(t.Context(), version)
	require.NoError(t, err)
	return image
}

// TestRealImagesScripts runs the commands against containerd: see
// testdata/images.
func TestRealImagesScripts(t *testing.T) {
	for _, f := range []rig.Flavor{rig.Debian, rig.V2} {
		t.Run(string(f), func(t *testing.T) {
			c := rig.ForTest(t, f)
			web, oci, nameless := busybox(t, "web"), busybox(t, "oci"), busybox(t, "nameless")
			t.Run("scripts", func(t *testing.T) {
				testscript.Run(t, testscript.Params{
					Dir: filepath.Join("testdata", "images"),
					Setup: func(e *testscript.Env) error {
						e.Setenv("NODELET_RUNTIME_ENDPOINT", c.Endpoint())
						dockerArchive(t, filepath.Join(e.WorkDir, "docker.tar"), "web:1", web)
						ociArchive(t, filepath.Join(e.WorkDir, "oci.tar"), t.TempDir(), "site.local/oci:1", oci)
						ociArchive(t, filepath.Join(e.WorkDir, "nameless.tar"), t.TempDir(), "", nameless)
						whole, err := os.ReadFile(filepath.Join(e.WorkDir, "docker.tar"))
						if err != nil {
							return err
						}
						if err := os.WriteFile(filepath.Join(e.WorkDir, "cut.tar"), whole[:len(whole)/2], 0o600); err != nil {
							return err
						}
						return os.WriteFile(filepath.Join(e.WorkDir, "commands.tar"), bytes.Repeat([]byte("no tar\n"), 1000), 0o600)
					},
					Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exitsWith},
				})
			})
		})
	}
}
