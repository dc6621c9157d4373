package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"nodelet.dev/nodelet/internal/config"
)

// field is one field of the configuration. The fields of a structure follow it.
type field struct {
	path  string // such as logging.format
	name  string // in Go
	kind  string // what it takes, for people
	doc   string
	value any // its default, nil when there is none
	group bool
}

// configFields reads the fields of config.Configuration, with the comments in the
// source of the package and the values of config.Default.
func configFields(source string) ([]field, error) {
	types, err := structures(source)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config.Default())
	if err != nil {
		return nil, fmt.Errorf("cannot encode the defaults: %w", err)
	}
	var defaults map[string]any
	if err := json.Unmarshal(text, &defaults); err != nil {
		return nil, fmt.Errorf("cannot decode the defaults: %w", err)
	}
	fields := fieldsOf(types, "Configuration", "", defaults)
	if len(fields) == 0 {
		return nil, fmt.Errorf("cannot find the type Configuration in %s: give the directory of package config", source)
	}
	return inWordsOfYAML(fields), nil
}

// inWordsOfYAML calls the fields in their comments as the file does: the comments
// are about the names of Go.
func inWordsOfYAML(fields []field) []field {
	keys := map[string]string{}
	for _, f := range fields {
		keys[f.name] = f.path[strings.LastIndexByte(f.path, '.')+1:]
	}
	for i := range fields {
		words := strings.Fields(fields[i].doc)
		for j, word := range words {
			bare := strings.TrimRight(word, ".,;:")
			if key, ok := keys[bare]; ok {
				words[j] = key + word[len(bare):]
			}
		}
		fields[i].doc = strings.Join(words, " ")
	}
	return fields
}

// structures returns the structures that a package declares, by name.
func structures(dir string) (map[string]*ast.StructType, error) {
	isSource := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), dir, isSource, parser.ParseComments) //nolint:staticcheck // one package without build tags
	if err != nil {
		return nil, fmt.Errorf("cannot read the source of package config: %w", err)
	}
	types := map[string]*ast.StructType{}
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				if s, ok := t.Type.(*ast.StructType); ok {
					types[t.Name.Name] = s
				}
			}
			return true
		})
	}
	return types, nil
}

func fieldsOf(types map[string]*ast.StructType, name, prefix string, defaults map[string]any) []field {
	s := types[name]
	if s == nil {
		return nil
	}
	var out []field
	doc := ""
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 || f.Tag == nil {
			continue // what says that the file is a configuration
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		// Fields that one comment is about stand right below it.
		if f.Doc != nil {
			doc = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
		one := field{path: prefix + key, name: f.Names[0].Name, kind: kindOf(f.Type), doc: doc, value: defaults[key]}
		inner := fieldsOf(types, typeName(f.Type), one.path+".", mapOf(defaults[key]))
		one.group = len(inner) > 0
		out = append(append(out, one), inner...)
	}
	return out
}

func mapOf(value any) map[string]any {
	if m, ok := value.(map[string]any); ok {
		return m
	}
	return nil // what is no map has no defaults
}

// typeName returns the name of a structure of the package, also behind a pointer.
func typeName(t ast.Expr) string {
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

func kindOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return kindOf(t.X)
	case *ast.ArrayType:
		return "list of " + kindOf(t.Elt)
	case *ast.MapType:
		return "map of " + kindOf(t.Key) + " to " + kindOf(t.Value)
	case *ast.SelectorExpr:
		return strings.ToLower(t.Sel.Name)
	case *ast.Ident:
		switch t.Name {
		case "int32", "int64", "int":
			return "number"
		case "bool", "string":
			return t.Name
		}
	}
	return "object"
}

// configPage returns the page nodelet.yaml(5).
func configPage(fields []field) string {
	p := header("nodelet.yaml", "5", "configuration of nodelet")
	p.section("SYNOPSIS")
	p.WriteString(italic("/etc/nodelet/config.yaml") + ", " + italic("/etc/nodelet/config.d/*.yaml") + "\n")
	p.section("DESCRIPTION")
	p.prose("The configuration of nodelet-run(8) is YAML and begins with\n\n  " + "apiVersion: " + config.APIVersion + "\n  kind: " + config.Kind + `

Files of the directory config.d are laid over it in the order of their names; environment and flags go over both.
nodelet config view shows what they make. Fields are named as in KubeletConfiguration where they mean the same.
One that does not exist is an error.`)
	p.section("FIELDS")
	for _, f := range fields {
		text := f.doc
		if f.value != nil && !f.group {
			text += " Default: " + flow(f.value) + "."
		}
		p.item(bold(f.path)+" ("+escape(f.kind)+")", text)
	}
	p.section("SEE ALSO")
	p.WriteString(bold("nodelet") + "(8), " + bold("nodelet-run") + "(8), " + bold("nodelet-config-view") + "(8)\n")
	return p.String()
}

// flow returns a value on one line, as YAML takes it.
func flow(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if s, ok := value.(string); ok {
		plain, err := yaml.Marshal(s)
		if line := strings.TrimSpace(string(plain)); err == nil && !strings.Contains(line, "\n") {
			return line
		}
	}
	return string(text)
}

// configExample returns a configuration that says what is the default anyway,
// with all of it commented out.
func configExample(fields []field) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# The configuration of nodelet. A # without a space behind it stands before a\n# default. See nodelet.yaml(5), and nodelet config view for what is in force.\napiVersion: %s\nkind: %s\n", config.APIVersion, config.Kind)
	last := ""
	for _, f := range fields {
		depth := strings.Repeat("  ", strings.Count(f.path, "."))
		if f.doc != last && f.doc != "" {
			out.WriteString("\n" + wrapped(f.doc, depth+"# "))
			last = f.doc
		}
		name := f.path[strings.LastIndexByte(f.path, '.')+1:]
		switch {
		case f.group && f.value != nil:
			out.WriteString(depth + "#" + name + ":\n")
		case f.value != nil:
			out.WriteString(depth + "#" + name + ": " + flow(f.value) + "\n")
		default:
			out.WriteString(depth + "# " + name + " (" + f.kind + ")\n")
		}
	}
	return out.String()
}

// wrapped breaks text into lines of at most 80 columns behind a prefix.
func wrapped(text, prefix string) string {
	var out strings.Builder
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(prefix)+len(line)+1+len(word) > 80 {
			out.WriteString(prefix + line + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return out.String() + prefix + line + "\n"
}
