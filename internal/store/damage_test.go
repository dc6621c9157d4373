package store

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However a file is damaged, it is found out at once, and moved aside.
func TestDamaged(t *testing.T) {
	good := func(t *testing.T) []byte {
		t.Helper()
		path := filepath.Join(t.TempDir(), "state.db")
		s, err := Open(path)
		require.NoError(t, err)
		for i := range 40 {
			require.NoError(t, s.Put(instance(strconv.Itoa(i))))
		}
		require.NoError(t, s.Close())
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	damage := map[string]func([]byte) []byte{
		"text":      func([]byte) []byte { return []byte("hello, this is no database at all") },
		"truncated": func(b []byte) []byte { return b[:len(b)/2/4096*4096] },
		"no metas":  func(b []byte) []byte { clear(b[:8192]); return b },
		"zeroed":    func(b []byte) []byte { clear(b[8192:]); return b },
		"noise": func(b []byte) []byte {
			for i := 8192; i < len(b); i += 7 {
				b[i] ^= 0x5a
			}
			return b
		},
	}
	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			require.NoError(t, os.WriteFile(path, spoil(good(t)), 0o600))
			_, err := Open(path)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			s, salvage, err := OpenOrSalvage(path, time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			require.Equal(t, path+".corrupt-20260504T030201Z", salvage.MovedTo)
			require.FileExists(t, salvage.MovedTo)
			require.NoError(t, s.Put(instance("a")))
		})
	}
}

// A full disk is an error with a type, and nothing that was stored is lost.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	path := filepath.Join(dir, "state.db")
	s, err := Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Put(instance("first")))
	filler := filepath.Join(dir, "filler")
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 1<<20), 0o600), syscall.ENOSPC)

	stored := map[string]bool{"first": true}
	for i := 0; ; i++ {
		uid := strconv.Itoa(i)
		err = s.Put(instance(uid))
		if err != nil {
			break
		}
		stored[uid] = true
		require.Less(t, i, 10000)
	}
	var full *FullError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Regexp(t, "^cannot write "+path+": the disk is full: the file system at "+dir+` has \d+ bytes free of 512\.0 KiB: .*no space left on device; make room there$`, err.Error())
	require.ErrorIs(t, s.Check(), syscall.ENOSPC)
	require.NoError(t, os.Remove(filler))
	require.NoError(t, s.Put(instance("after")))
	require.NoError(t, s.Check())
	stored["after"] = true

	s = reopen(t, s)
	all, err := s.All()
	require.NoError(t, err)
	found := map[string]bool{}
	for _, i := range all {
		found[string(i.UID())] = true
	}
	require.Equal(t, stored, found)
}

// A new file on a disk that is full from the start.
func TestFullDiskAtOpen(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600), syscall.ENOSPC)
	_, err := Open(filepath.Join(dir, "state.db"))
	var full *FullError
	require.ErrorAs(t, err, &full)
}
