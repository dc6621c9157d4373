package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nodelet.dev/nodelet/internal/config"
	"nodelet.dev/nodelet/internal/images"
)

func imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Import, list, pin and remove the images of this machine",
		Long: `Import, list, pin and remove the images of this machine. These commands speak to
containerd itself: they need root, and no agent.

Archives that are put into the directory images below the root directory of the
agent are imported and pinned by themselves, at the start of the agent and
later: *.tar, *.tar.gz, *.tgz and *.tar.zst, in the order of their names.`,
		Example: `  nodelet images import --pin web.tar
  nodelet images ls -o wide
  nodelet images rm busybox:1.36`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(cmd, "command", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(imagesImportCommand(), imagesListCommand(), imagesPinCommand(), imagesUnpinCommand(), imagesRemoveCommand())
	for _, c := range cmd.Commands() {
		c.Flags().String(config.FlagConfig, config.DefaultFile, "configuration file")
		c.Flags().String(config.FlagConfigDir, config.DefaultDir, "directory of drop-ins, *.yaml (with --config: config.d beside that file)")
		c.Flags().String("runtime-endpoint", config.Default().ContainerRuntimeEndpoint, "socket of the CRI runtime")
	}
	return cmd
}

// someArgs asks for at least one argument.
func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &exitError{exitUsage, fmt.Errorf("%s needs %s, see %s --help", cmd.CommandPath(), what, cmd.CommandPath())}
		}
		return nil
	}
}

// withImages runs f with a client of the containerd that the configuration names.
func withImages(cmd *cobra.Command, f func(context.Context, *images.Client) error) error {
	l, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	c, err := images.Connect(cmd.Context(), cmp.Or(l.Config.ImageServiceEndpoint, l.Config.ContainerRuntimeEndpoint))
	if err != nil {
		return unreachableRuntime(err)
	}
	return errors.Join(f(cmd.Context(), c), c.Close())
}

func unreachableRuntime(err error) error {
	if _, away := errors.AsType[*images.UnavailableError](err); away {
		return &exitError{exitUnavailable, err}
	}
	return err
}

func imagesImportCommand() *cobra.Command {
	var options images.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import images from archives",
		Long: `Import images from archives: OCI layouts and what docker save writes, as a tar,
plain or compressed with gzip or zstd. - is the standard input. The images are
unpacked for this machine, and pods can use them at once. An archive that is
damaged changes nothing.

For each image its name, digest and size are printed.`,
		Example: `  nodelet images import --pin web.tar
  docker save web:1 | nodelet images import -
  nodelet images import --name registry.example.com/web:1 layout.tar`,
		Args: someArgs("an archive"),
	}
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withImages(cmd, func(ctx context.Context, c *images.Client) error {
			all := []images.Imported{}
			err := each(args, func(path string) error {
				imported, err := importFile(ctx, cmd.InOrStdin(), c, path, options)
				for _, i := range imported {
					if !out.machine() {
						printImported(cmd.OutOrStdout(), i)
					}
				}
				all = append(all, imported...)
				return err
			})
			if out.machine() {
				err = errors.Join(err, out.print(cmd.OutOrStdout(), all))
			}
			return err
		})
	}
	cmd.Flags().BoolVar(&options.Pin, "pin", false, "keep the images from being collected")
	cmd.Flags().StringVar(&options.Name, "name", "", "`REPOSITORY[:TAG]` of an image that has no name in its archive")
	return cmd
}

// each does the same for all arguments, also when some fail.
func each(args []string, do func(string) error) error {
	var failures []error
	for _, a := range args {
		failures = append(failures, do(a))
	}
	return errors.Join(failures...)
}

func importFile(ctx context.Context, in io.Reader, c *images.Client, path string, options images.ImportOptions) (imported []images.Imported, err error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot import: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		in = file
	}
	imported, err = c.Import(ctx, in, options)
	if err != nil {
		return imported, fmt.Errorf("%s: %w", filepath.Clean(path), err)
	}
	return imported, nil
}

func printImported(w io.Writer, i images.Imported) {
	pinned := ""
	if i.Pinned {
		pinned = " pinned"
	}
	fmt.Fprintf(w, "%s %s %s%s\n", i.Name, i.Digest, size(i.SizeBytes), pinned)
}

// imageChange is what a command did to one name of an image.
type imageChange struct {
	Name   string `json:"name"`
	Change string `json:"change"`
}

// changesImages makes a command of one that changes images by name. change
// returns what it did to one of them.
func changesImages(cmd *cobra.Command, change func(ctx context.Context, c *images.Client, name string) ([]imageChange, error)) *cobra.Command {
	cmd.Args = someArgs("the name of an image")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withImages(cmd, func(ctx context.Context, c *images.Client) error {
			all := []imageChange{}
			err := each(args, func(name string) error {
				changes, err := change(ctx, c, name)
				for _, done := range changes {
					if !out.machine() {
						fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done.Name, done.Change)
					}
				}
				all = append(all, changes...)
				return err
			})
			if out.machine() {
				err = errors.Join(err, out.print(cmd.OutOrStdout(), all))
			}
			return err
		})
	}
	return cmd
}

func changed(names []string, change string) []imageChange {
	var list []imageChange
	for _, n := range names {
		list = append(list, imageChange{Name: n, Change: change})
	}
	return list
}

func imagesPinCommand() *cobra.Command {
	return changesImages(&cobra.Command{
		Use:   "pin NAME...",
		Short: "Keep images from being collected",
		Long: `Keep images from being collected when the disk fills. NAME is a name as pods have
it, or the first 12 or more characters of an ID.`,
		Example: "  nodelet images pin busybox:1.36",
	}, func(ctx context.Context, c *images.Client, name string) ([]imageChange, error) {
		done, err := c.Pin(ctx, name)
		return changed(done.Names, "pinned"), err
	})
}

func imagesUnpinCommand() *cobra.Command {
	return changesImages(&cobra.Command{
		Use:   "unpin NAME...",
		Short: "Let images be collected again",
		Long: `Let images be collected again when nobody uses them and the disk fills. This
takes the pins of the image away at all its names.`,
		Example: "  nodelet images unpin busybox:1.36",
	}, func(ctx context.Context, c *images.Client, name string) ([]imageChange, error) {
		done, err := c.Unpin(ctx, name)
		if err == nil && len(done.Names) == 0 {
			return changed([]string{name}, "was not pinned"), nil
		}
		return changed(done.Names, "unpinned"), err
	})
}

func imagesRemoveCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove images",
		Long: `Remove names of images, and an image with its last name. An ID, or its first 12
or more characters, stands for all names. An image that is pinned or that a
container uses, running or not, is only removed with --force.

What came from an archive in the images directory of the agent comes back while
the archive is there: remove that, too.`,
		Example: "  nodelet images rm busybox:1.36",
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also remove what is pinned or used")
	return changesImages(cmd, func(ctx context.Context, c *images.Client, name string) ([]imageChange, error) {
		done, err := c.Remove(ctx, name, force)
		if err == nil && len(done.Image.Archives) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "nodelet: %s came from %s in the images directory of the agent and comes back while that is there\n",
				name, strings.Join(done.Image.Archives, ", "))
		}
		return changed(done.Names, "removed"), err
	})
}

// users are the pods that use an image, each once.
func users(list []images.User) []string {
	var out []string
	for _, u := range list {
		out = append(out, u.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
