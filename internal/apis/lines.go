package apis

import (
	"strconv"
	"strings"

	yaml3 "go.yaml.in/yaml/v3"
)

// lineOf returns the line of the file on which the field at path is written:
// that of its key, or of its nearest written parent. The document is parsed
// again for it, which only lists and broken objects pay for.
func lineOf(c chunk, path string) int {
	var root yaml3.Node
	if err := yaml3.Unmarshal(c.text, &root); err != nil || len(root.Content) == 0 {
		return c.line
	}
	node := root.Content[0]
	line := node.Line
	for path != "" {
		next, rest, found := descend(node, path)
		if next == nil || len(rest) >= len(path) {
			break // not written down, or an empty key that uses up nothing
		}
		node, path, line = next, rest, found
	}
	return c.line + line - 1
}

// descend takes one step of path below node. Map keys may hold dots, so the
// longest key that fits wins.
func descend(node *yaml3.Node, path string) (next *yaml3.Node, rest string, line int) {
	if node.Kind == yaml3.AliasNode {
		node = node.Alias
	}
	path = strings.TrimPrefix(path, ".")
	switch node.Kind {
	case yaml3.MappingNode:
		bare := strings.TrimPrefix(path, "[")
		best := -1
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value
			tail, ok := strings.CutPrefix(bare, key)
			if !ok || (tail != "" && !strings.ContainsRune(".[]", rune(tail[0]))) || len(key) <= best {
				continue
			}
			best = len(key)
			next, rest, line = node.Content[i+1], strings.TrimPrefix(tail, "]"), node.Content[i].Line
		}
	case yaml3.SequenceNode:
		index, tail, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if n, err := strconv.Atoi(index); ok && err == nil && n >= 0 && n < len(node.Content) {
			return node.Content[n], tail, node.Content[n].Line
		}
	default: // a scalar has nothing below it
	}
	return next, rest, line
}
