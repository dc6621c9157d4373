package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"nodelet.dev/nodelet/runtime/convert"
)

// linkLog makes the link that log collectors look for (STC-5). A link with the
// name is from an earlier attempt to make it.
func (c *Client) linkLog(status *runtimeapi.ContainerStatus) error {
	dir := c.o.ContainerLogLinksDir
	if dir == "" || status.GetLogPath() == "" {
		return nil
	}
	if err := os.MkdirAll(dir, logDirMode); err != nil {
		return fmt.Errorf("cannot link the log of container %s: %w", status.GetId(), err)
	}
	key := convert.Identity(status.GetLabels(), nil).Key
	link := filepath.Join(dir, convert.LogLink(key, status.GetMetadata().GetName(), status.GetId()))
	if err := os.Symlink(status.GetLogPath(), link); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot link the log of container %s: %w", status.GetId(), err)
	}
	return nil
}

// unlinkLog removes the link of a container. Its name ends in the ID.
func (c *Client) unlinkLog(id string) error {
	if c.o.ContainerLogLinksDir == "" {
		return nil
	}
	links, err := filepath.Glob(filepath.Join(c.o.ContainerLogLinksDir, "*-"+id+".log"))
	if err != nil {
		return fmt.Errorf("cannot find the log link of container %s: %w", id, err)
	}
	for _, link := range links {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the log link of container %s: %w", id, err)
		}
	}
	return nil
}
