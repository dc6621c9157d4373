package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Loaded is a configuration with its origins.
type Loaded struct {
	Config Configuration
	// Origins tells of each field where its value was said, by its path, such as
	// logging.format or staticPodURLHeader.Authorization. A list has one origin.
	// Fields that nobody set and that have no default are missing.
	Origins map[string]Origin
	// Ignored are the fields of KubeletConfigurations that nodelet does not have,
	// in the order of the files.
	Ignored []Ignored
	// Warnings tell what is probably a mistake and stops nothing.
	Warnings []string

	tree *value
}

// Load merges what the sources say: a flag goes over a variable, that over a
// drop-in, that over the file, and that over the defaults. Objects and mappings
// are merged field by field and lists are replaced, as in a JSON merge patch;
// null takes back what was said before, so that the default holds again. Files
// hold a NodeletConfiguration or a KubeletConfiguration. The error is Errors,
// with everything that is wrong.
func Load(s Sources) (Loaded, error) {
	own := ownSchema()
	out := Loaded{Warnings: s.strange()}
	base, err := defaults(own)
	if err != nil {
		return out, err
	}
	var faults Errors
	said := object(Origin{})
	files, bad := s.files()
	faults = append(faults, bad...)
	theirs := kubeletSchema()
	for _, file := range files {
		d := decoder{kind: file.kind, path: file.path, own: own, theirs: theirs}
		said = merge(said, d.document(file.text))
		faults = append(faults, d.faults...)
		out.Ignored = append(out.Ignored, d.ignored...)
	}
	env, flags, bad := s.overrides(own)
	faults = append(faults, bad...)
	out.tree = merge(base, merge(merge(said, env), flags))
	if len(faults) > 0 {
		return out, faults
	}
	if out.Config, err = out.tree.configuration(); err != nil {
		return out, err
	}
	for _, f := range out.Config.faults() {
		faults = append(faults, &Error{Origin: out.tree.find(f.Field).origin, Reason: f.Error()})
	}
	if len(faults) > 0 {
		return out, faults
	}
	out.Origins = map[string]Origin{}
	out.tree.each(own, "", func(path string, leaf *value) { out.Origins[path] = leaf.origin })
	return out, nil
}

// file is the text of a file.
type file struct {
	kind OriginKind
	path string
	text []byte
}

// files reads the main file and the drop-ins.
func (s Sources) files() (list []file, faults []*Error) {
	add := func(kind OriginKind, path string, required bool) {
		text, err := read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !required:
		case err != nil:
			faults = append(faults, &Error{Origin: Origin{Kind: kind, Name: path}, Reason: fmt.Sprintf("cannot read it: %v", err), cause: err})
		default:
			list = append(list, file{kind, path, text})
		}
	}
	if s.File != "" {
		add(FromFile, s.File, s.FileRequired)
	}
	if s.Dir == "" {
		return list, faults
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil && (s.DirRequired || !errors.Is(err, fs.ErrNotExist)) {
		faults = append(faults, &Error{Origin: Origin{Kind: FromDropIn, Name: s.Dir}, Reason: fmt.Sprintf("cannot read the drop-ins: %v", cause(err)), cause: err})
	}
	for _, e := range entries { // in lexical order
		if strings.HasSuffix(e.Name(), ".yaml") && !strings.HasPrefix(e.Name(), ".") {
			add(FromDropIn, filepath.Join(s.Dir, e.Name()), true)
		}
	}
	return list, faults
}

// read reads a regular file, of which it takes a little more than is allowed.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, cause(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, bytesMax+4))
	return text, cause(errors.Join(err, f.Close()))
}

// cause leaves away the operation and the path, which the origin names.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
