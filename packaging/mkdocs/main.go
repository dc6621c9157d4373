package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkdocs:", err)
		os.Exit(1)
	}
}

// run writes DIR/man/man8, DIR/man/man5 and DIR/config.yaml.
func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("cannot tell what to do from %d arguments: give NODELET, the program, CONFIG, the source of package config, and DIR, where to write", len(args))
	}
	program, source, dir := args[0], args[1], args[2]
	text, err := exec.CommandContext(ctx, program, "docs").Output()
	if err != nil {
		return fmt.Errorf("cannot get the commands of %s: %w", program, err)
	}
	var top command
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("cannot read the commands of %s: %w", program, err)
	}
	fields, err := configFields(source)
	if err != nil {
		return err
	}
	files := map[string]string{
		"man/man5/nodelet.yaml.5": configPage(fields),
		"config.yaml":             configExample(fields),
	}
	for name, page := range commandPages(&top) {
		files["man/man8/"+name] = page
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("cannot make the directory of %s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
	}
	return nil
}
