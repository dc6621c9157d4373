package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"nodelet.dev/nodelet/internal/images"
)

func imagesListCommand() *cobra.Command {
	var out *output
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images of this machine",
		Long: `List the images of this machine: one line for each name, with the size that a
registry would send and the pods that use the image, running or not.`,
		Example: "  nodelet images ls\n  nodelet images ls -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withImages(cmd, func(ctx context.Context, c *images.Client) error {
				list, err := c.List(ctx)
				if err != nil {
					return err
				}
				if out.machine() {
					return out.print(cmd.OutOrStdout(), list)
				}
				return printImages(cmd.OutOrStdout(), list, out.format == outputWide)
			})
		},
	}
	out = addOutput(cmd, outputWide)
	return cmd
}

// maxShown is how many pods the narrow table names.
const maxShown = 2

// printImages writes the images as people read them.
func printImages(w io.Writer, list []images.Image, wide bool) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no images")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	header := "IMAGE\tTAG\tIMAGE ID\tSIZE\tPINNED\tUSED BY"
	if wide {
		header += "\tDIGEST\tARCHIVE"
	}
	fmt.Fprintln(table, header)
	for i := range list {
		for _, name := range rowsOf(&list[i]) {
			row := []string{name[0], name[1], shortID(list[i].ID, wide), size(list[i].SizeBytes), yesNo(list[i].Pinned), usedBy(list[i].UsedBy, wide)}
			if wide {
				row = append(row, list[i].Digest, orNone(strings.Join(list[i].Archives, ", ")))
			}
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
	}
	return table.Flush()
}

// rowsOf returns repository and tag of each name of an image. One that was
// pulled by its digest has no tag.
func rowsOf(i *images.Image) [][2]string {
	var rows [][2]string
	for _, n := range i.Names {
		at := strings.LastIndex(n, ":")
		if at < strings.LastIndex(n, "/") {
			rows = append(rows, [2]string{n, "<none>"})
			continue
		}
		rows = append(rows, [2]string{n[:at], n[at+1:]})
	}
	if len(rows) > 0 {
		return rows
	}
	for _, d := range i.RepoDigests {
		repository, _, _ := strings.Cut(d, "@")
		rows = append(rows, [2]string{repository, "<none>"})
	}
	if len(rows) == 0 {
		rows = append(rows, [2]string{"<none>", "<none>"})
	}
	return rows
}

func shortID(id string, wide bool) string {
	digest := strings.TrimPrefix(id, "sha256:")
	if wide {
		return digest
	}
	return digest[:min(len(digest), 12)]
}

func usedBy(list []images.User, wide bool) string {
	pods := users(list)
	if !wide && len(pods) > maxShown {
		return fmt.Sprintf("%s and %d more", strings.Join(pods[:maxShown], ", "), len(pods)-maxShown)
	}
	return orNone(strings.Join(pods, ", "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// size writes a number of bytes as registries do, in powers of ten.
func size(bytes int64) string {
	value, unit := float64(bytes), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if value < 999.5 {
			break
		}
		value, unit = value/1000, next
	}
	return fmt.Sprintf("%.3g%s", value, unit)
}
