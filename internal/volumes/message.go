package volumes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// messageMax is how much of the end of a termination message counts (C-20).
const messageMax = 4096

// TerminationMessage returns the end of what an instance wrote into its message
// file, "" when it wrote none. That the file cannot be read becomes the message
// (ST-14).
func (m *Manager) TerminationMessage(uid types.UID, container string, attempt uint32) string {
	if err := checkUID(uid); err != nil {
		return err.Error()
	}
	text, err := readEnd(m.TerminationMessagePath(uid, container, attempt))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("cannot read the termination message: %v", err)
	}
	return text
}

func readEnd(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	var data []byte
	start := int64(0)
	if err == nil {
		start = max(info.Size()-messageMax, 0)
		data, err = io.ReadAll(io.NewSectionReader(f, start, messageMax))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	for i := 0; start > 0 && i < utf8.UTFMax && len(data) > 0 && !utf8.RuneStart(data[0]); i++ {
		data = data[1:] // the rest of a letter that was cut in two
	}
	return string(data), nil
}
