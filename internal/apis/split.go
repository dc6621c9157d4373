package apis

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode"
)

// chunk is the text of one document of a file.
type chunk struct {
	text []byte
	line int // line of the file that the text starts on, from 1
}

// split cuts a file into documents. JSON values may follow each other without
// a separator; anything else is taken as YAML, where a line that starts with
// "---" separates. A YAML document that happens to start with "{" is no valid
// JSON, and falls through to YAML.
func split(data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if chunks, ok := splitJSON(data); ok {
		return chunks
	}
	return splitYAML(data)
}

// Empty reports whether data holds no document at all, not even an empty list.
func Empty(data []byte) bool { return len(split(data)) == 0 }

func splitJSON(data []byte) ([]chunk, bool) {
	if trimmed := bytes.TrimLeftFunc(data, unicode.IsSpace); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, false
	}
	var chunks []chunk
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return chunks, true
		}
		if err != nil {
			return nil, false
		}
		start := int(decoder.InputOffset()) - len(raw)
		chunks = append(chunks, chunk{text: raw, line: 1 + bytes.Count(data[:start], []byte("\n"))})
	}
}

// splitYAML works on lines before anything is parsed, so that one broken
// document does not take the others with it. In YAML "---" in the first column
// is always a separator, even inside a block of text.
func splitYAML(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 1, 0
	flush := func(end int) {
		if text := data[start:end]; !blank(text) {
			chunks = append(chunks, chunk{text: text, line: startLine})
		}
	}
	for offset := 0; offset < len(data); {
		line++
		end := len(data)
		if i := bytes.IndexByte(data[offset:], '\n'); i >= 0 {
			end = offset + i + 1
		}
		if separates(data[offset:end]) && offset > start {
			flush(offset)
			start, startLine = offset, line
		}
		offset = end
	}
	flush(len(data))
	return chunks
}

func separates(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// blank reports whether a document holds nothing but comments and markers.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' || bytes.Equal(line, []byte("---")) || bytes.Equal(line, []byte("...")) {
			continue
		}
		return false
	}
	return true
}
