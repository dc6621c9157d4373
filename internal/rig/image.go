package rig

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The sandbox's process: it ends at once on TERM, and reaps whatever a shared process namespace leaves to it, since a
// shell that waits reaps every child. A compiled program would need a compiler and a build per machine for no more.
const pauseScript = `trap "exit 0" TERM INT; while :; do sleep 2147483 & wait $!; done`

// Busybox builds an image from the machine's static busybox, with all its applets in /bin. Images of two versions
// differ in /etc/version, which is a layer of its own: a registry serves it for each version, so that it can be stalled.
func Busybox(ctx context.Context, version string) (v1.Image, error) {
	applets, err := exec.CommandContext(ctx, busyboxPath, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the applets of %s: install the Debian package busybox-static: %w", busyboxPath, err)
	}
	binary, err := os.ReadFile(busyboxPath)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: install the Debian package busybox-static: %w", busyboxPath, err)
	}
	base := []entry{
		dir("bin", 0o755), dir("etc", 0o755), dir("root", 0o700), dir("tmp", 0o1777), dir("var", 0o755), dir("home", 0o755),
		file("bin/busybox", 0o755, string(binary)),
		file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		file("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
	}
	for applet := range strings.Lines(string(applets)) {
		if applet = strings.TrimSpace(applet); applet != "" && applet != "busybox" {
			base = append(base, link("bin/"+applet, "busybox"))
		}
	}
	return build(v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}, Labels: map[string]string{"version": version}},
		base, []entry{dir("etc", 0o755), file("etc/version", 0o644, version+"\n")})
}

// Pause builds the sandbox image.
func Pause(ctx context.Context) (v1.Image, error) {
	image, err := Busybox(ctx, "pause")
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("cannot read the config of the pause image: %w", err)
	}
	pause := config.Config.DeepCopy()
	pause.Entrypoint, pause.Cmd = []string{"/bin/sh", "-c", pauseScript}, nil
	if image, err = mutate.Config(image, *pause); err != nil {
		return nil, fmt.Errorf("cannot build the pause image: %w", err)
	}
	return image, nil
}

type entry struct {
	header tar.Header
	body   string
}

func dir(path string, mode int64) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode}}
}

func file(path string, mode int64, body string) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode, Size: int64(len(body))}, body: body}
}

func link(path, target string) entry {
	return entry{header: tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target, Mode: 0o777}}
}

// build is deterministic: the same machine always makes the same digest, so a second import finds everything there.
func build(config v1.Config, layers ...[]entry) (v1.Image, error) {
	image := empty.Image
	for _, entries := range layers {
		layer, err := buildLayer(entries)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, fmt.Errorf("cannot add an image layer: %w", err)
		}
	}
	image, err := mutate.ConfigFile(image, configFile(image, config))
	if err != nil {
		return nil, fmt.Errorf("cannot set the image's config: %w", err)
	}
	return image, nil
}

func configFile(image v1.Image, config v1.Config) *v1.ConfigFile {
	file := &v1.ConfigFile{OS: "linux", Architecture: goruntime.GOARCH, Config: config}
	if old, err := image.ConfigFile(); err == nil {
		file.RootFS, file.History = old.RootFS, old.History
	}
	return file
}

func buildLayer(entries []entry) (v1.Layer, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, e := range entries {
		e.header.ModTime = time.Unix(0, 0)
		if err := writer.WriteHeader(&e.header); err != nil {
			return nil, fmt.Errorf("cannot write %s into an image layer: %w", e.header.Name, err)
		}
		if _, err := io.WriteString(writer, e.body); err != nil {
			return nil, fmt.Errorf("cannot write %s into an image layer: %w", e.header.Name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("cannot finish an image layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot build an image layer: %w", err)
	}
	return layer, nil
}

// Import loads images under the given names, such as "nodelet.local/busybox:2", and waits until CRI shows them. They
// stay usable without any registry.
func (c *Containerd) Import(ctx context.Context, images map[string]v1.Image) error {
	tagged := make(map[name.Tag]v1.Image, len(images))
	for ref, image := range images {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("cannot import image %q: %w", ref, err)
		}
		tagged[tag] = image
	}
	archive, err := os.CreateTemp(string(c.layout), "import-*.tar")
	if err != nil {
		return fmt.Errorf("cannot write an image archive: %w", err)
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	defer func() { _ = archive.Close() }()
	if err := tarball.MultiWrite(tagged, archive); err != nil {
		return fmt.Errorf("cannot write an image archive: %w", err)
	}
	out, err := exec.CommandContext(ctx, c.saved.Binaries.Ctr, "--address", c.Address(), "--namespace", "k8s.io",
		"images", "import", archive.Name()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot import images into containerd: %w: %s", err, out)
	}
	for ref := range images {
		if err := c.waitImage(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}
