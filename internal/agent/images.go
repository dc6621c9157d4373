package agent

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/credentials"
	"nodelet.dev/nodelet/internal/images"
	"nodelet.dev/nodelet/runtime"
)

// imagesDir is the name of the directory of image archives in the root directory.
const imagesDir = "images"

// imageSources are where images come from beside the registries that need no
// credentials. open sets its fields before anything is pulled.
type imageSources struct {
	socket  bool // that leads to the runtime
	keyring *credentials.Keyring
	// archives are imported without a registry; nil without a socket.
	archives *images.Directory
}

// openImages reads the credentials, of which it tells in events of the node, and
// looks for archives from then on.
func (a *Agent) openImages() {
	a.images.open(a.cfg, func(kind, reason, message string) { a.events.Add(a.nodeReference(), kind, reason, message) })
}

func (s *imageSources) open(c config.Configuration, tell func(kind, reason, message string)) {
	s.keyring = credentials.New(credentials.Options{
		Files:              registryFiles(c),
		ProviderConfigFile: c.ImageCredentialProviderConfigFile, ProviderBinDir: c.ImageCredentialProviderBinDir,
		Warn: func(reason, message string) {
			klog.InfoS("A part of the registry credentials is not as it should be", "reason", reason, "message", message)
			tell(corev1.EventTypeWarning, reason, message)
		},
	})
	if !s.socket {
		return
	}
	dir := filepath.Join(c.RootDirectory, imagesDir)
	endpoint := cmp.Or(c.ImageServiceEndpoint, c.ContainerRuntimeEndpoint)
	s.archives = images.NewDirectory(dir,
		func(ctx context.Context) (images.Store, error) { return images.Connect(ctx, endpoint) },
		func(archive string, imported []images.Imported) {
			var names []string
			for _, i := range imported {
				names = append(names, i.Name)
			}
			klog.InfoS("Imported images", "archive", archive, "images", names)
			tell(corev1.EventTypeNormal, "ImageImported", fmt.Sprintf("Imported and pinned %s from %s", strings.Join(names, ", "), filepath.Join(dir, archive)))
		},
		func(archive string, err error) {
			if !filepath.IsAbs(archive) {
				archive = filepath.Join(dir, archive)
			}
			klog.ErrorS(err, "Cannot import images", "archive", archive)
			tell(corev1.EventTypeWarning, "FailedImageImport", fmt.Sprintf("%s: %v", archive, err))
		})
}

// registryFiles are the files with credentials, where the kubelet looks, too.
func registryFiles(c config.Configuration) []string {
	if len(c.RegistryConfigFiles) > 0 {
		return c.RegistryConfigFiles
	}
	return []string{filepath.Join(c.RootDirectory, "config.json"), "/root/.docker/config.json"}
}

// lookup returns the node's credentials for an image.
func (s *imageSources) lookup(ctx context.Context, image string) ([]runtime.Auth, error) {
	found, err := s.keyring.Lookup(ctx, image)
	var out []runtime.Auth
	for _, a := range found {
		out = append(out, runtime.Auth{
			Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken, Source: a.Source,
		})
	}
	return out, err
}

// arriving waits for the next archive.
func (s *imageSources) arriving(ctx context.Context) bool {
	return s.archives != nil && s.archives.Await(ctx)
}

// run imports archives until ctx ends.
func (s *imageSources) run(ctx context.Context) error {
	if s.archives == nil {
		return nil
	}
	return s.archives.Run(ctx)
}
