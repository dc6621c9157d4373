package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nodelet.dev/nodelet/internal/rig"
)

// podOf is a pod of one image that goes on.
func podOf(name, image, policy string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n  containers:\n"+
		"  - {name: main, image: %q, imagePullPolicy: %s, command: [sleep, \"1000\"]}\n", name, image, policy)
}

// nodeEvents returns the messages of events about the node, by reason.
func (n *node) nodeEvents(reason string) []string {
	var list corev1.EventList
	if err := n.get("/events", &list); err != nil {
		return nil
	}
	var out []string
	for i := range list.Items {
		if e := &list.Items[i]; e.InvolvedObject.Kind == "Node" && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out
}

// podEvents returns the messages of events about a pod, by reason.
func (n *node) podEvents(pod, reason string) string {
	var list corev1.EventList
	if err := n.get("/events", &list); err != nil {
		return ""
	}
	var out []string
	for i := range list.Items {
		if e := &list.Items[i]; e.InvolvedObject.Name == pod && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "\n")
}

func (n *node) waiting(pod, reason string) func() bool {
	return func() bool {
		p, ok := n.pods()[pod]
		if !ok || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w != nil && (w.Reason == reason || w.Reason == "ImagePullBackOff" && reason == "ErrImagePull")
	}
}

// configure writes the configuration, which takes effect with the next start.
func (n *node) configure(lines string) {
	n.t.Helper()
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, "config.yaml"),
		[]byte("apiVersion: config.nodelet.dev/v1alpha1\nkind: NodeletConfiguration\nregistryPullQPS: 0\n"+lines), 0o600))
}

// TestRealOfflineImages: archives of the images directory are there for pods
// whatever their pull policy, without any registry.
func TestRealOfflineImages(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		dir := filepath.Join(n.dir, "root", "images")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		put := func(name string, write func(path string)) {
			t.Helper()
			temp := filepath.Join(n.dir, "new.tar")
			write(temp)
			require.NoError(t, os.Rename(temp, filepath.Join(dir, name)))
		}
		put("10-first.tar", func(path string) { dockerArchive(t, path, "offline.invalid/first:1", busybox(t, "first")) })
		put("20-second.tar", func(path string) { ociArchive(t, path, t.TempDir(), "offline.invalid/second:1", busybox(t, "second")) })
		put("15-bad.tar", func(path string) { require.NoError(t, os.WriteFile(path, []byte("no archive"), 0o600)) })
		n.apply("first", podOf("first", "offline.invalid/first:1", "Never"))
		n.apply("second", podOf("second", "offline.invalid/second:1", "IfNotPresent"))
		n.start()
		n.awaitReady("first")
		n.awaitReady("second")
		for _, pod := range []string{"first", "second"} {
			require.Empty(t, n.podEvents(pod, "Failed"), "nothing was tried before the import was over")
			require.Empty(t, n.podEvents(pod, "ErrImageNeverPull"))
		}
		n.eventually("the bad archive is told", func() bool { return len(n.nodeEvents("FailedImageImport")) == 1 })
		require.Contains(t, n.nodeEvents("FailedImageImport")[0], filepath.Join(dir, "15-bad.tar")+": cannot import: ")
		imported := n.nodeEvents("ImageImported")
		require.Equal(t, []string{
			"Imported and pinned offline.invalid/first:1 from " + filepath.Join(dir, "10-first.tar"),
			"Imported and pinned offline.invalid/second:1 from " + filepath.Join(dir, "20-second.tar"),
		}, imported)
		list := n.images("ls", "-o", "wide")
		require.Regexp(t, `(?m)^offline.invalid/first +1 +[0-9a-f]+ +\S+ +yes +default/first +sha256:[0-9a-f]+ +10-first.tar$`, list)

		t.Run("an archive that appears later", func(t *testing.T) {
			n.apply("third", podOf("third", "offline.invalid/third:1", "Never"))
			n.eventually("third waits", n.waiting("third", "ErrImageNeverPull"))
			put("30-third.tar", func(path string) { dockerArchive(t, path, "offline.invalid/third:1", busybox(t, "third")) })
			n.awaitReady("third")
		})
		t.Run("the next agent imports nothing again", func(t *testing.T) {
			n.kill()
			n.start()
			n.awaitReady("third")
			put("15-bad.tar", func(path string) { dockerArchive(t, path, "offline.invalid/good:1", busybox(t, "good")) })
			n.eventually("the corrected archive is imported", func() bool {
				return strings.Contains(n.images("ls"), "offline.invalid/good")
			})
			require.Equal(t, 1, strings.Count(n.log(), `images=["offline.invalid/first:1"]`))
		})
		t.Run("what is removed comes back with the next agent", func(t *testing.T) {
			n.images("rm", "--force", "offline.invalid/good:1")
			n.kill()
			n.start()
			n.eventually("it is back", func() bool { return strings.Contains(n.images("ls"), "offline.invalid/good") })
		})
	})
}

// images runs a command of nodelet images that must succeed.
func (n *node) images(args ...string) string {
	n.t.Helper()
	out, err := n.command(append([]string{"images"}, append(args, "--runtime-endpoint", n.endpoint)...)...).CombinedOutput()
	require.NoError(n.t, err, string(out))
	return string(out)
}

// TestRealOfflineWithoutContainerd: an agent that is there before containerd
// imports once containerd is.
func TestRealOfflineWithoutContainerd(t *testing.T) {
	c := rig.ForTest(t, rig.V2)
	n := newNode(t, binary(t), c.Endpoint())
	require.NoError(t, c.Kill9(t.Context()))
	dir := filepath.Join(n.dir, "root", "images")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	dockerArchive(t, filepath.Join(dir, "a.tar"), "offline.invalid/a:1", busybox(t, "a"))
	n.apply("a", podOf("a", "offline.invalid/a:1", "Never"))
	n.start()
	n.eventually("the agent answers", func() bool { return n.get("/pods", &corev1.PodList{}) == nil })
	require.Empty(t, n.nodeEvents("FailedImageImport"))
	require.NoError(t, c.Restart(t.Context()))
	n.awaitReady("a")
}

func dockerConfig(entries map[string]string) string {
	var auths []string
	for registry, user := range entries {
		auths = append(auths, fmt.Sprintf("%q: {\"auth\": %q}", registry, base64.StdEncoding.EncodeToString([]byte(user))))
	}
	return `{"auths": {` + strings.Join(auths, ", ") + "}}"
}

// TestRealRegistryCredentials: two registries, each with its own user, through
// a docker config file that is corrected while the agent runs.
func TestRealRegistryCredentials(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		one, two := protected(t, "one:right"), protected(t, "two:right")
		file := filepath.Join(n.dir, "docker.json")
		write := func(entries map[string]string) {
			require.NoError(t, os.WriteFile(file, []byte(dockerConfig(entries)), 0o600))
		}
		write(map[string]string{one: "one:right", two: "two:hunter2"})
		n.configure("registryConfigFiles: [" + file + "]\n")
		n.start()
		n.apply("one", podOf("one", one+"/shop/web:1", "Always"))
		n.apply("two", podOf("two", two+"/shop/web:1", "Always"))
		n.awaitReady("one")
		n.eventually("two waits", n.waiting("two", "ErrImagePull"))
		n.eventually("the failure is told", func() bool { return n.podEvents("two", "Failed") != "" })
		failure := n.podEvents("two", "Failed")
		require.Contains(t, failure, fmt.Sprintf("registry %s refused the credentials of %s (entry %q)", two, file, two))
		require.NotContains(t, failure+n.log(), "hunter2")
		write(map[string]string{one: "one:right", two: "two:right"})
		n.awaitReady("two")

		t.Run("no credentials", func(t *testing.T) {
			write(map[string]string{one: "one:right"})
			n.apply("third", podOf("third", two+"/shop/other:1", "Always"))
			n.eventually("third waits", n.waiting("third", "ErrImagePull"))
			n.eventually("the failure is told", func() bool { return n.podEvents("third", "Failed") != "" })
			require.Contains(t, n.podEvents("third", "Failed"), "no credentials for registry "+two+" are configured")
		})
		t.Run("a broken file", func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte("{"), 0o644))
			require.NoError(t, os.Chmod(file, 0o644))
			n.apply("fourth", podOf("fourth", one+"/shop/other:1", "Always"))
			n.awaitReady("fourth") // with what the file said before
			require.Contains(t, strings.Join(n.nodeEvents("RegistryCredentialsInvalid"), "\n"), "cannot read the registry credentials of "+file)
			require.Contains(t, strings.Join(n.nodeEvents("RegistryCredentialsExposed"), "\n"), "chmod 600 "+file)
		})
	})
}

// protected is a registry whose images want a user and a password.
func protected(t *testing.T, user string) string {
	t.Helper()
	registry, err := rig.NewRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Close()) })
	name, password, _ := strings.Cut(user, ":")
	for _, repository := range []string{"shop/web", "shop/other"} {
		_, err = registry.Push(t.Context(), repository+":1", busybox(t, registry.Address()+repository))
		require.NoError(t, err)
		registry.Protect(repository, name, password)
	}
	return registry.Address()
}

// TestRealCredentialProvider: a plugin of the kubelet's kind gives the password.
func TestRealCredentialProvider(t *testing.T) {
	flavors(t, func(t *testing.T, c *rig.Containerd, bin string) {
		t.Helper()
		n := newNode(t, bin, c.Endpoint())
		registry := protected(t, "plugin:right")
		bins := filepath.Join(n.dir, "bin")
		require.NoError(t, os.MkdirAll(bins, 0o755))
		script := func(text string) {
			t.Helper()
			temp := filepath.Join(n.dir, "new")
			require.NoError(t, os.WriteFile(temp, []byte("#!/bin/sh\n"+text), 0o600))
			require.NoError(t, os.Chmod(temp, 0o755))
			require.NoError(t, os.Rename(temp, filepath.Join(bins, "vault")))
		}
		providers := filepath.Join(n.dir, "providers.yaml")
		require.NoError(t, os.WriteFile(providers, fmt.Appendf(nil, `
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: vault
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 1h
  args: [get]
  env: [{name: WHO, value: plugin}]
`, registry), 0o600))
		n.configure("imageCredentialProviderConfigFile: " + providers + "\nimageCredentialProviderBinDir: " + bins + "\n")
		n.start()
		n.eventually("the missing program is told", func() bool {
			return strings.Contains(strings.Join(n.nodeEvents("CredentialProviderInvalid"), "\n"), "cannot run credential provider vault at "+bins+"/vault")
		})
		script("echo the vault is sealed >&2; exit 1\n")
		n.apply("web", podOf("web", registry+"/shop/web:1", "Always"))
		n.eventually("web waits", n.waiting("web", "ErrImagePull"))
		n.eventually("the failure is told", func() bool { return strings.Contains(n.podEvents("web", "Failed"), "the vault is sealed") })
		script(`cat > ` + n.dir + `/request
cat <<EOF
{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
 "auth": {"` + registry + `": {"username": "$WHO", "password": "right"}}}
EOF
`)
		n.awaitReady("web")
		request, err := os.ReadFile(filepath.Join(n.dir, "request"))
		require.NoError(t, err)
		require.Contains(t, string(request), `"image":"`+registry+`/shop/web"`)
		script("exit 1\n") // nobody asks: the answer is good for an hour
		n.apply("other", podOf("other", registry+"/shop/other:1", "Always"))
		n.awaitReady("other")
	})
}
