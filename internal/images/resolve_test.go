package images

import (
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	core "github.com/containerd/containerd/v2/core/images"
	"github.com/stretchr/testify/require"
)

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// TestResolve: what users write for an image.
func TestResolve(t *testing.T) {
	list := []Image{
		{ID: digest("a"), Names: []string{"docker.io/library/busybox:latest", "docker.io/library/busybox:1.36"}},
		{ID: digest("b"), Names: []string{"docker.io/team/web:2"}, RepoDigests: []string{"docker.io/team/web@" + digest("c")}},
		{ID: "sha256:" + strings.Repeat("d", 20) + strings.Repeat("1", 44), Names: []string{"registry.example.com:5000/shop/web:1"}},
		{ID: "sha256:" + strings.Repeat("d", 20) + strings.Repeat("2", 44), Names: []string{"docker.io/library/cafe:latest"}},
	}
	for _, test := range []struct {
		given string
		want  int // index, or -1
		name  string
		err   string
	}{
		{"busybox", 0, "docker.io/library/busybox:latest", ""},
		{"busybox:1.36", 0, "docker.io/library/busybox:1.36", ""},
		{"docker.io/library/busybox", 0, "docker.io/library/busybox:latest", ""},
		{"team/web:2", 1, "docker.io/team/web:2", ""},
		{"team/web@" + digest("c"), 1, "docker.io/team/web@" + digest("c"), ""},
		{"registry.example.com:5000/shop/web:1", 2, "registry.example.com:5000/shop/web:1", ""},
		{strings.Repeat("a", 12), 0, "", ""},
		{digest("a"), 0, "", ""},
		{strings.Repeat("d", 20) + "1", 2, "", ""},
		{"cafe", 3, "docker.io/library/cafe:latest", ""},
		{strings.Repeat("d", 12), -1, "", "cannot choose an image: 2 have an ID that begins with"},
		{"aaaa", -1, "", `cannot find image "aaaa": give at least 12 characters of an ID; did you mean aaaaaaaaaaaa?`},
		{strings.Repeat("e", 12), -1, "", "cannot find image"},
		{"busybox:2", -1, "", `cannot find image "busybox:2" on this machine; did you mean busybox:1.36 or busybox:latest?`},
		{"busibox", -1, "", `did you mean busybox:latest?`},
		{"registry.example.com/shop/web:1", -1, "", "did you mean registry.example.com:5000/shop/web:1 or team/web:2?"},
		{"nothing/like:it", -1, "", `cannot find image "nothing/like:it" on this machine`},
		{"Not//valid", -1, "", "the name is not valid"},
	} {
		image, name, err := resolve(list, test.given)
		if test.want < 0 {
			require.ErrorContains(t, err, test.err, test.given)
			continue
		}
		require.NoError(t, err, test.given)
		require.Equal(t, list[test.want].ID, image.ID, test.given)
		require.Equal(t, test.name, name, test.given)
	}
	_, _, err := resolve(list, "nothing/like:it")
	require.NotContains(t, err.Error(), "did you mean")
}

// TestWithout: which names go when one goes.
func TestWithout(t *testing.T) {
	image := func(names ...string) *Image {
		i := &Image{ID: digest("a")}
		for _, n := range names {
			i.records = append(i.records, core.Image{Name: n})
		}
		return i
	}
	web := "r.io/web@" + digest("b")
	other := "r.io/other@" + digest("b")
	for _, test := range []struct {
		image  *Image
		name   string
		doomed []string
		gone   bool
	}{
		{image("r.io/web:1", web, digest("a")), "r.io/web:1", []string{"r.io/web:1", web, digest("a")}, true},
		{image("r.io/web:1", "r.io/web:2", web, digest("a")), "r.io/web:1", []string{"r.io/web:1"}, false},
		{image("r.io/web:1", web, other, digest("a")), "r.io/web:1", []string{"r.io/web:1", web}, false},
		{image("r.io/web:1", web, digest("a")), web, []string{web}, false},
		{image(web, digest("a")), web, []string{web, digest("a")}, true},
		{image("r.io/web:1", other, digest("a")), "", []string{"r.io/web:1", other, digest("a")}, true},
		{image("r.io/web:1"), "r.io/web:1", []string{"r.io/web:1"}, true},
	} {
		doomed, gone := test.image.without(test.name)
		require.Equal(t, test.doomed, doomed)
		require.Equal(t, test.gone, gone)
	}
}

// TestConnectFaults: each says what to do.
func TestConnectFaults(t *testing.T) {
	dir := t.TempDir()
	_, err := Connect(t.Context(), "unix://"+dir+"/none.sock")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "cannot reach containerd: no socket at "+dir+"/none.sock; start it: systemctl start containerd, or name the socket with --runtime-endpoint")
	var away *UnavailableError
	require.ErrorAs(t, err, &away)

	left := filepath.Join(dir, "left.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", left)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	_, err = Connect(t.Context(), left)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "nobody answers at "+left)

	_, err = Connect(t.Context(), "tcp://127.0.0.1:1")
	require.EqualError(t, err, `cannot reach containerd at "tcp://127.0.0.1:1": only unix sockets are supported`)
}

// TestImportFailed: texts that only a machine in trouble gives.
func TestImportFailed(t *testing.T) {
	full := importFailed(errors.New("failed to ingest x: write /var/lib: no space left on device"), &source{})
	require.ErrorContains(t, full, "the disk of containerd is full; make room, such as with nodelet images rm")
	var bad *ArchiveError
	require.False(t, errors.As(full, &bad), "it is to be tried again")
	away := importFailed(&UnavailableError{Endpoint: "x", Err: errors.New("gone")}, &source{})
	require.ErrorContains(t, away, "containerd went away")
	require.True(t, isAway(away))
	other := importFailed(errors.New("boom"), &source{})
	require.EqualError(t, other, "cannot import: boom")
}
