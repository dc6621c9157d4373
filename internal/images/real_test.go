package images_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/internal/images"
	"nodelet.dev/nodelet/internal/pod"
	"nodelet.dev/nodelet/internal/rig"
	"nodelet.dev/nodelet/runtime"
)

const patience = time.Minute

func flavors(t *testing.T, test func(t *testing.T, r *onRig)) {
	t.Helper()
	for _, f := range []rig.Flavor{rig.Debian, rig.V2} {
		t.Run(string(f), func(t *testing.T) { test(t, newRig(t, f)) })
	}
}

// onRig is a private containerd with a client of images and one of CRI.
type onRig struct {
	*images.Client
	t          *testing.T
	containerd *rig.Containerd
	cri        runtimeapi.ImageServiceClient
	runtime    *runtime.Client
}

func newRig(t *testing.T, flavor rig.Flavor) *onRig {
	t.Helper()
	r := &onRig{t: t, containerd: rig.ForTest(t, flavor)}
	var err error
	r.Client, err = images.Connect(t.Context(), r.containerd.Endpoint())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	conn, err := r.containerd.Dial()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	r.cri = runtimeapi.NewImageServiceClient(conn)
	r.runtime = runtime.New(runtime.Options{
		RuntimeEndpoint: r.containerd.Address(), PodLogsDir: t.TempDir(), NodeName: "node-1", HostIPs: []string{"192.0.2.1"}, MinOOMScoreAdj: 1000,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.runtime.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	require.NoError(t, r.runtime.Connect(t.Context()))
	return r
}

// shown returns what CRI says of an image, nil if it has none.
func (r *onRig) shown(name string) *runtimeapi.Image {
	r.t.Helper()
	s, err := r.cri.ImageStatus(r.t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	require.NoError(r.t, err)
	return s.GetImage()
}

// hasPins reports whether CRI shows pins: 1.6 does not.
func (r *onRig) hasPins() bool { return r.containerd.Flavor() == rig.V2 }

func (r *onRig) image(name string) images.Image {
	r.t.Helper()
	list, err := r.List(r.t.Context())
	require.NoError(r.t, err)
	for i := range list {
		if slices.Contains(list[i].Names, name) {
			return list[i]
		}
	}
	require.FailNow(r.t, "no image "+name)
	return images.Image{}
}

// use looks an image up as a container with pull policy Never does.
func (r *onRig) use(name string) error {
	c := corev1.Container{Name: "main", Image: name, ImagePullPolicy: corev1.PullNever}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	_, err := r.runtime.PullImage(r.t.Context(), runtime.ImageRequest{Pod: p, Container: &c})
	return err
}

// run starts a pod of an image.
func (r *onRig) run(podName, image string) *corev1.Pod {
	r.t.Helper()
	ctx := r.t.Context()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: "shop", UID: "uid-1"},
		Spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault, Containers: []corev1.Container{{
			Name: "main", Image: image, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "1000"},
		}}},
	}
	found, err := r.runtime.PullImage(ctx, runtime.ImageRequest{Pod: p, Container: &p.Spec.Containers[0]})
	require.NoError(r.t, err)
	_, err = r.runtime.CreateSandbox(ctx, runtime.SandboxRequest{Pod: p, SpecHash: pod.SpecHash(p)})
	require.NoError(r.t, err)
	o, err := r.runtime.Inspect(ctx, p.UID)
	require.NoError(r.t, err)
	id, err := r.runtime.CreateContainer(ctx, runtime.ContainerRequest{Pod: p, Name: "main", Sandbox: o.Sandboxes[0], ImageRef: found.Ref})
	require.NoError(r.t, err)
	require.NoError(r.t, r.runtime.StartContainer(ctx, id))
	return p
}

func build(t *testing.T, version string) v1.Image {
	t.Helper()
	i, err := rig.Busybox(t.Context(), version)
	require.NoError(t, err)
	return i
}

// docker writes what docker save writes.
func docker(t *testing.T, list map[string]v1.Image) []byte {
	t.Helper()
	tagged := map[name.Reference]v1.Image{}
	for ref, i := range list {
		tag, err := name.NewTag(ref)
		require.NoError(t, err)
		tagged[tag] = i
	}
	var out bytes.Buffer
	require.NoError(t, tarball.MultiRefWrite(tagged, &out))
	return out.Bytes()
}

// oci writes an OCI layout whose index has these annotations for the image.
func oci(t *testing.T, i v1.Image, annotations map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, p.AppendImage(i, layout.WithAnnotations(annotations)))
	return pack(t, dir)
}

func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	return out.Bytes()
}

func gzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zstded(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	require.NoError(t, err)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

const refName = "org.opencontainers.image.ref.name"

// TestRealImport: every kind of archive, and the names that its images get.
func TestRealImport(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		for _, test := range []struct {
			name    string
			archive []byte
			options images.ImportOptions
			want    []string
		}{
			{"docker", docker(t, map[string]v1.Image{"site.local/docker:1": build(t, "d1"), "site.local/docker:2": build(t, "d2")}), images.ImportOptions{}, []string{"site.local/docker:1", "site.local/docker:2"}},
			{"docker short name", docker(t, map[string]v1.Image{"short:1": build(t, "s1")}), images.ImportOptions{}, []string{"docker.io/library/short:1"}},
			{"docker gzip", gzipped(t, docker(t, map[string]v1.Image{"site.local/gz:1": build(t, "g1")})), images.ImportOptions{}, []string{"site.local/gz:1"}},
			{"oci", oci(t, build(t, "o1"), map[string]string{refName: "site.local/oci:1"}), images.ImportOptions{}, []string{"site.local/oci:1"}},
			{"oci zstd", zstded(t, oci(t, build(t, "o2"), map[string]string{refName: "site.local/zst:1"})), images.ImportOptions{}, []string{"site.local/zst:1"}},
			{"oci of containerd", oci(t, build(t, "o3"), map[string]string{refName: "1", "io.containerd.image.name": "site.local/ctr:1"}), images.ImportOptions{}, []string{"site.local/ctr:1"}},
			{"oci with a tag", oci(t, build(t, "o4"), map[string]string{refName: "7"}), images.ImportOptions{Name: "site.local/tag"}, []string{"site.local/tag:7"}},
			{"oci without a name", oci(t, build(t, "o5"), nil), images.ImportOptions{Name: "site.local/given:3"}, []string{"site.local/given:3"}},
		} {
			imported, err := r.Import(t.Context(), bytes.NewReader(test.archive), test.options)
			require.NoError(t, err, test.name)
			var names []string
			for _, i := range imported {
				names = append(names, i.Name)
				require.Positive(t, i.SizeBytes)
				require.Contains(t, i.Digest, "sha256:")
				require.False(t, i.Pinned)
			}
			slices.Sort(names)
			require.Equal(t, test.want, names, test.name)
			for _, n := range names {
				require.NoError(t, r.use(n), "CRI has it when Import returns")
				require.Equal(t, r.shown(n).GetId(), r.image(n).ID)
				require.EqualValues(t, r.shown(n).GetSize(), r.image(n).SizeBytes)
			}
		}
		r.run("web", "site.local/docker:2")
		require.Equal(t, []images.User{{Namespace: "shop", Pod: "web", Container: "main"}}, r.image("site.local/docker:2").UsedBy)
		require.Empty(t, r.image("site.local/docker:1").UsedBy)
		require.Equal(t, []images.User{{Namespace: "shop", Pod: "web"}}, r.image(rig.PauseImage).UsedBy, "the sandbox")
		// containerd 2 keeps a lease for each sandbox.
		require.LessOrEqual(t, len(strings.Fields(ctr(t, r.containerd, "leases", "ls", "-q"))), 1, "leases are given back")
	})
}

// TestRealImportKeeps: a second import replaces what a name means and keeps its
// pin.
func TestRealImportKeeps(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		first := docker(t, map[string]v1.Image{"site.local/app:1": build(t, "one")})
		imported, err := r.Import(t.Context(), bytes.NewReader(first), images.ImportOptions{Pin: true})
		require.NoError(t, err)
		require.True(t, imported[0].Pinned)
		if r.hasPins() {
			require.True(t, r.shown("site.local/app:1").GetPinned())
		}
		second := docker(t, map[string]v1.Image{"site.local/app:1": build(t, "two")})
		imported2, err := r.Import(t.Context(), bytes.NewReader(second), images.ImportOptions{})
		require.NoError(t, err)
		require.True(t, imported2[0].Pinned)
		require.NotEqual(t, imported[0].Digest, imported2[0].Digest)
		require.True(t, r.image("site.local/app:1").Pinned)
	})
}

// TestRealImportFaults: each bad archive has its words, and changes nothing.
func TestRealImportFaults(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		good := docker(t, map[string]v1.Image{"site.local/app:1": build(t, "one")})
		_, err := r.Import(t.Context(), bytes.NewReader(good), images.ImportOptions{})
		require.NoError(t, err)
		before, err := r.List(t.Context())
		require.NoError(t, err)

		next := build(t, "two")
		whole := docker(t, map[string]v1.Image{"site.local/app:1": next})
		// Each has a layer of its own: what an earlier archive brought stays in
		// containerd for a while, and would make a later one whole.
		versions := 0
		layoutOf := func(change func(dir, blob string)) []byte {
			versions++
			image := build(t, fmt.Sprint("layout", versions))
			layers, err := image.Layers()
			require.NoError(t, err)
			digest, err := layers[1].Digest()
			require.NoError(t, err)
			dir := t.TempDir()
			p, err := layout.Write(dir, empty.Index)
			require.NoError(t, err)
			require.NoError(t, p.AppendImage(image, layout.WithAnnotations(map[string]string{refName: "site.local/app:1"})))
			change(dir, filepath.Join(dir, "blobs", "sha256", digest.Hex))
			return pack(t, dir)
		}
		foreign := next
		config, err := foreign.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.Architecture = "s390x"
		foreign, err = mutate.ConfigFile(foreign, config)
		require.NoError(t, err)
		packed := gzipped(t, whole)

		for _, test := range []struct {
			name    string
			archive []byte
			want    string
		}{
			{"empty", nil, "this is not an image archive"},
			{"text", []byte("hello\n"), "cannot import: "},
			{"other file", bytes.Repeat([]byte("hello world\n"), 1000), "this is not an image archive"},
			{"other tar", pack(t, textDir(t)), "this is not an image archive"},
			{"cut", whole[:len(whole)/2], "the archive is cut short"},
			{"cut gzip", packed[:len(packed)/2], "the archive is cut short"},
			{"flipped gzip", flipped(packed), "the archive is"},
			{"blob changed", layoutOf(func(_, blob string) { require.NoError(t, os.WriteFile(blob, []byte("other"), 0o600)) }), "the archive is damaged or incomplete"},
			{"blob missing", layoutOf(func(_, blob string) { require.NoError(t, os.Remove(blob)) }), "the archive is damaged or incomplete"},
			{"index is no JSON", layoutOf(func(dir, _ string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "index.json"), []byte("{"), 0o600))
			}), "index.json is not valid"},
			{"no index", layoutOf(func(dir, _ string) { require.NoError(t, os.Remove(filepath.Join(dir, "index.json"))) }), "the archive is not valid"},
			{"docker layer changed", swapLayer(t, build(t, "swapped"), build(t, "three")), "the archive is damaged"},
			{"no name", oci(t, next, nil), "of the archive has no name; name it with --name REPOSITORY:TAG"},
			{"tag only", oci(t, next, map[string]string{refName: "7"}), `has a tag, "7", and no repository`},
			{"platform", docker(t, map[string]v1.Image{"site.local/app:1": foreign}), "the archive has images for linux/s390x alone"},
			{"nothing in it", oci(t, next, map[string]string{"vnd.docker.reference.type": "attestation-manifest"}), "there is no image in the archive"},
		} {
			imported, err := r.Import(t.Context(), bytes.NewReader(test.archive), images.ImportOptions{})
			require.ErrorContains(t, err, test.want, test.name)
			var bad *images.ArchiveError
			require.ErrorAs(t, err, &bad, test.name)
			require.Empty(t, imported, test.name)
		}
		after, err := r.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, after, "a damaged archive changes nothing")
		require.Empty(t, ctr(t, r.containerd, "leases", "ls", "-q"))

		_, err = r.Import(t.Context(), io.MultiReader(bytes.NewReader(whole[:1000]), broken{}), images.ImportOptions{})
		require.ErrorIs(t, err, os.ErrPermission)
		require.ErrorContains(t, err, "cannot read the archive")
		_, err = r.Import(t.Context(), bytes.NewReader(oci(t, next, nil)), images.ImportOptions{Name: "Not//valid"})
		require.ErrorContains(t, err, `cannot import under the name "Not//valid"`)
	})
}

// TestRealImportWithoutContainerd: that containerd goes away in the middle is no
// fault of the archive.
func TestRealImportWithoutContainerd(t *testing.T) {
	flavors(t, func(t *testing.T, r *onRig) {
		t.Helper()
		whole := docker(t, map[string]v1.Image{"site.local/app:1": build(t, "away")})
		in, out := io.Pipe()
		killed := make(chan error, 1)
		go func() {
			_, err := out.Write(whole[:len(whole)/2])
			killed <- errors.Join(err, r.containerd.Kill9(t.Context()))
			_, err = out.Write(whole[len(whole)/2:])
			_ = out.CloseWithError(err)
		}()
		_, err := r.Import(t.Context(), in, images.ImportOptions{})
		require.NoError(t, <-killed)
		require.NoError(t, in.Close())
		require.Error(t, err)
		var bad *images.ArchiveError
		require.NotErrorAs(t, err, &bad)
		require.ErrorContains(t, err, "cannot import: containerd went away")
		require.NoError(t, r.containerd.Restart(t.Context()))
		_, err = r.Import(t.Context(), bytes.NewReader(whole), images.ImportOptions{})
		require.NoError(t, err)
		require.NoError(t, r.use("site.local/app:1"))
	})
}

// broken is a reader whose disk failed.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, os.ErrPermission }

func flipped(text []byte) []byte {
	text = slices.Clone(text)
	for i := range 64 {
		text[len(text)/2+i] ^= 0xff
	}
	return text
}

func textDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "readme"), []byte("hello"), 0o600))
	return dir
}

// swapLayer writes what docker save writes, with a layer of another image in the
// place of one of the first: names and checksums of files agree, content not.
func swapLayer(t *testing.T, i, other v1.Image) []byte {
	t.Helper()
	layers, err := i.Layers()
	require.NoError(t, err)
	wrong, err := other.Layers()
	require.NoError(t, err)
	digest, err := layers[1].Digest()
	require.NoError(t, err)
	stream, err := wrong[1].Compressed()
	require.NoError(t, err)
	text, err := io.ReadAll(stream)
	require.NoError(t, err)
	in := tar.NewReader(bytes.NewReader(docker(t, map[string]v1.Image{"site.local/app:1": i})))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		body, err := io.ReadAll(in)
		require.NoError(t, err)
		if header.Name == digest.Hex+".tar.gz" {
			body, header.Size = text, int64(len(text))
		}
		require.NoError(t, w.WriteHeader(header))
		_, err = w.Write(body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func ctr(t *testing.T, c *rig.Containerd, args ...string) string {
	t.Helper()
	out, err := rigCtr(t.Context(), c, args...)
	require.NoError(t, err, out)
	return out
}
