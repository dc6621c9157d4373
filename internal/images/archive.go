package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Archive is one version of an archive file.
type Archive struct {
	Name    string // within its directory
	Size    int64
	ModTime time.Time
}

// Each image of an archive carries the archive's version and how many images it
// gave. That cannot lie: it goes with the images, and it is written with the name
// of an image that is unpacked. A note in a file of our own could outlive them.
// The label's key has a hash of the name, so that an image that two archives
// bring has the labels of both.
func (a Archive) label() string {
	sum := sha256.Sum256([]byte(a.Name))
	return labelArchive + hex.EncodeToString(sum[:8])
}

// A name of a file has at most 255 bytes, and containerd allows labels of 4096.
func (a Archive) value(images int) string {
	return fmt.Sprintf("%d,%d,%d,%s", images, a.Size, a.ModTime.UnixNano(), a.Name)
}

// in reports whether all images of the archive are there, by what Archives
// returned.
func (a Archive) in(held map[string]int) bool {
	for value, images := range held {
		var count int
		if n, err := fmt.Sscanf(value, "%d,", &count); err == nil && n == 1 && value == a.value(count) {
			return images >= count
		}
	}
	return false
}

// Archives returns how many images carry the mark of each version of an archive.
func (c *Client) Archives(ctx context.Context) (map[string]int, error) {
	list, err := c.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the images of containerd: %w", err)
	}
	held := map[string]int{}
	for i := range list {
		for key, value := range list[i].Labels {
			if strings.HasPrefix(key, labelArchive) {
				held[value]++
			}
		}
	}
	return held, nil
}

// archiveNames returns the names of the archives that brought an image.
func archiveNames(labels map[string]string) []string {
	var names []string
	for key, value := range labels {
		if parts := strings.SplitN(value, ",", 4); strings.HasPrefix(key, labelArchive) && len(parts) == 4 {
			names = append(names, parts[3])
		}
	}
	return names
}
