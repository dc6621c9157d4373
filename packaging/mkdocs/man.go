package main

import (
	"fmt"
	"maps"
	"strings"
)

// command is a command as nodelet docs tells it.
type command struct {
	Path, Usage, Short, Long, Example string

	Flags []struct {
		Name, Shorthand, Value, Usage, Default string
	}
	Commands []command
	Exits    [][2]string
}

// page builds a manual page in the man macros.
type page struct{ strings.Builder }

// header begins a page. It has no date: the same sources give the same page.
func header(name, section, short string) *page {
	p := &page{}
	fmt.Fprintf(p, ".TH %s %s \"\" nodelet \"nodelet manual\"\n", escape(strings.ToUpper(name)), section)
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", escape(name), escape(short))
	return p
}

func (p *page) section(name string) { fmt.Fprintf(p, ".SH %s\n", escape(name)) }

// prose writes paragraphs, which empty lines separate. Indented lines stay as
// they are.
func (p *page) prose(text string) {
	verbatim, begun := false, true
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  "); indented != verbatim && line != "" {
			if verbatim = indented; verbatim {
				p.WriteString(".PP\n.RS 4\n.nf\n")
			} else {
				p.WriteString(".fi\n.RE\n.PP\n")
			}
			begun = true
		}
		switch {
		case line != "":
			p.WriteString(escape(strings.TrimPrefix(line, "  ")) + "\n")
			begun = false
		case !begun && !verbatim:
			p.WriteString(".PP\n")
			begun = true
		}
	}
	if verbatim {
		p.WriteString(".fi\n.RE\n")
	}
}

// item writes a tagged paragraph; the tag is in roff already.
func (p *page) item(tag, text string) {
	p.WriteString(".TP\n" + tag + "\n")
	if text != "" {
		p.WriteString(escape(text) + "\n")
	}
}

func bold(text string) string { return `\fB` + escape(text) + `\fR` }

func italic(text string) string { return `\fI` + escape(text) + `\fR` }

// escape makes text that no macro and no escape begins in.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// pageName is the name of a command's page: nodelet-config-view.
func pageName(c *command) string { return strings.ReplaceAll(c.Path, " ", "-") }

// commandPages returns the page of a command and those below it, by file name.
func commandPages(c *command) map[string]string {
	pages := map[string]string{pageName(c) + ".8": commandPage(c)}
	for i := range c.Commands {
		maps.Copy(pages, commandPages(&c.Commands[i]))
	}
	return pages
}

func commandPage(c *command) string {
	p := header(pageName(c), "8", c.Short)
	p.section("SYNOPSIS")
	p.WriteString(bold(c.Path) + escape(strings.TrimPrefix(c.Usage, c.Path)) + "\n")
	p.section("DESCRIPTION")
	if c.Long == "" {
		p.prose(c.Short + ".")
	}
	p.prose(c.Long)
	if len(c.Commands) > 0 {
		p.section("COMMANDS")
		for i := range c.Commands {
			p.item(bold(pageName(&c.Commands[i]))+"(8)", c.Commands[i].Short+".")
		}
	}
	if len(c.Flags) > 0 {
		p.section("OPTIONS")
		for _, f := range c.Flags {
			tag := bold("--" + f.Name)
			if f.Shorthand != "" {
				tag = bold("-"+f.Shorthand) + ", " + tag
			}
			if f.Value != "" {
				tag += " " + italic(f.Value)
			}
			text := f.Usage
			if f.Default != "" {
				text += " (default " + f.Default + ")"
			}
			p.item(tag, text)
		}
	}
	p.section("EXAMPLES")
	p.prose(c.Example)
	if len(c.Exits) > 0 {
		p.section("EXIT STATUS")
		for _, e := range c.Exits {
			p.item(bold(e[0]), e[1])
		}
		p.section("FILES")
		p.item(italic("/etc/nodelet/config.yaml"), "The configuration, see nodelet.yaml(5).")
		p.item(italic("/etc/nodelet/manifests"), "The pods that are to run here.")
		p.item(italic("/var/lib/nodelet"), "The durable state, and the directories of the pods.")
		p.item(italic("/run/nodelet/nodelet.sock"), "The socket of the agent.")
	}
	p.section("SEE ALSO")
	also := bold("nodelet.yaml") + "(5)"
	if parent := strings.LastIndexByte(c.Path, ' '); parent > 0 {
		also = bold(strings.ReplaceAll(c.Path[:parent], " ", "-")) + "(8), " + also
	}
	p.WriteString(also + "\n")
	return p.String()
}
