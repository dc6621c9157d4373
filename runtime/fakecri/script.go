package fakecri

import (
	"fmt"
	"slices"
	"strings"
)

// A script is parsed into steps. Only what tests of an agent need of a shell is here; anything else is an error, so
// that no test passes by misunderstanding.

type step struct {
	// connector is how the step hangs on the one before: ";", "&&" or "||".
	connector  string
	words      []string // of a simple command, unless loop or branch is set
	background bool
	redirect   string // file that standard output goes to, or "&2"
	appending  bool
	condition  []step // of a loop or branch
	body       []step
	otherwise  []step
	kind       stepKind
}

type stepKind int

const (
	simpleStep stepKind = iota
	loopStep
	branchStep
)

type token struct {
	text   string
	quoted bool
	// raw is text in single quotes, in which variables are not expanded.
	raw bool
}

func (t token) operator(text string) bool { return !t.quoted && t.text == text }

func parseScript(script string) ([]step, error) {
	tokens, err := tokenize(script)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	steps, err := p.list()
	if err != nil {
		return nil, err
	}
	if p.next < len(p.tokens) {
		return nil, fmt.Errorf("syntax error: unexpected %q", p.tokens[p.next].text)
	}
	return steps, nil
}

type parser struct {
	tokens []token
	next   int
}

func (p *parser) peek(text string) bool {
	return p.next < len(p.tokens) && p.tokens[p.next].operator(text)
}

func (p *parser) list() ([]step, error) {
	var steps []step
	connector := ";"
	for p.next < len(p.tokens) {
		if slices.ContainsFunc([]string{"do", "done", "then", "else", "fi"}, p.peek) {
			break
		}
		if p.peek(";") {
			p.next++
			continue
		}
		s, err := p.step()
		if err != nil {
			return nil, err
		}
		s.connector, connector = connector, ";"
		switch {
		case p.peek("&"):
			s.background = true
			p.next++
		case p.peek("&&"), p.peek("||"):
			connector = p.tokens[p.next].text
			p.next++
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func (p *parser) step() (step, error) {
	switch {
	case p.peek("while"):
		return p.compound(loopStep, "do", "done")
	case p.peek("if"):
		return p.compound(branchStep, "then", "fi")
	}
	return p.simple()
}

func (p *parser) compound(kind stepKind, middle, end string) (step, error) {
	p.next++
	s := step{kind: kind}
	var err error
	if s.condition, err = p.list(); err != nil {
		return s, err
	}
	if err := p.expect(middle); err != nil {
		return s, err
	}
	if s.body, err = p.list(); err != nil {
		return s, err
	}
	if kind == branchStep && p.peek("else") {
		p.next++
		if s.otherwise, err = p.list(); err != nil {
			return s, err
		}
	}
	return s, p.expect(end)
}

func (p *parser) expect(text string) error {
	if !p.peek(text) {
		return fmt.Errorf("syntax error: %q is missing", text)
	}
	p.next++
	return nil
}

func (p *parser) simple() (step, error) {
	var s step
	for ; p.next < len(p.tokens); p.next++ {
		t := p.tokens[p.next]
		switch {
		case t.operator(";"), t.operator("&"), t.operator("&&"), t.operator("||"):
			return s, nil
		case t.operator(">"), t.operator(">>"):
			p.next++
			if p.next >= len(p.tokens) {
				return s, fmt.Errorf("syntax error: no file after %q", t.text)
			}
			s.redirect, s.appending = p.tokens[p.next].text, t.text == ">>"
		case t.operator(">&2"):
			s.redirect = "&2"
		case t.raw:
			s.words = append(s.words, strings.ReplaceAll(t.text, "$", literalDollar))
		default:
			s.words = append(s.words, t.text)
		}
	}
	return s, nil
}

// literalDollar stands for a dollar sign that must not be expanded.
const literalDollar = "\x00"

func tokenize(script string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(script); {
		switch c := script[i]; {
		case c == ' ' || c == '\t':
			i++
		case c == '\n':
			tokens = append(tokens, token{text: ";"})
			i++
		case strings.IndexByte(";&|>", c) >= 0:
			op := operatorAt(script[i:])
			if op == "" {
				return nil, fmt.Errorf("the fake shell does not know %q", script[i:])
			}
			tokens = append(tokens, token{text: op})
			i += len(op)
		default:
			t, length, err := word(script[i:])
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, t)
			i += length
		}
	}
	return tokens, nil
}

func operatorAt(text string) string {
	for _, op := range []string{">&2", ">>", "&&", "||", ";", "&", ">"} {
		if strings.HasPrefix(text, op) {
			return op
		}
	}
	return ""
}

func word(text string) (token, int, error) {
	var t token
	var built strings.Builder
	i := 0
	for i < len(text) && !strings.ContainsRune(" \t\n;&|>", rune(text[i])) {
		c := text[i]
		if c != '\'' && c != '"' {
			built.WriteByte(c)
			i++
			continue
		}
		end := strings.IndexByte(text[i+1:], c)
		if end < 0 {
			return t, 0, fmt.Errorf("syntax error: unterminated quote in %q", text)
		}
		built.WriteString(text[i+1 : i+1+end])
		t.quoted, t.raw = true, t.raw || c == '\''
		i += end + 2
	}
	t.text = built.String()
	return t, i, nil
}
