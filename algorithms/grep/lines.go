package grep

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"
)

// lineFinder finds the lines of a text that match. Exactly one of its ways is used, but for strings beside patterns.
type lineFinder struct {
	strings  finder // nil: none
	patterns []pattern
}

// pattern is a regular expression and, if every match begins with a certain string, the way to find that.
type pattern struct {
	re     *regexp.Regexp
	prefix finder // nil: none
}

func newLineFinder(o Options) *lineFinder {
	f := &lineFinder{}
	switch {
	case len(o.Strings) == 1 && !o.IgnoreCase:
		f.strings = newRareByte(o.Strings[0])
	case len(o.Strings) > 0:
		f.strings = newAutomaton(o.Strings, o.IgnoreCase)
	}
	for _, p := range o.Patterns {
		re := o.compile(p)
		entry := pattern{re: re}
		// A pattern with U+FFFD matches invalid bytes as well, its prefix does not.
		if prefix, _ := re.LiteralPrefix(); prefix != "" && !strings.ContainsRune(prefix, utf8.RuneError) {
			entry.prefix = newRareByte(prefix)
		}
		f.patterns = append(f.patterns, entry)
	}
	return f
}

// compile compiles a pattern that Validate has found valid.
func (o Options) compile(expr string) *regexp.Regexp {
	if o.IgnoreCase {
		expr = "(?i:" + expr + ")"
	}
	return regexp.MustCompile(expr)
}

// next returns the first line of text that matches and that begins at from or later, where a line must begin: from its
// first byte to its line feed or the end of the text. start is -1 if there is none.
func (f *lineFinder) next(text []byte, from int) (start, end int) {
	start = -1
	if f.strings != nil {
		start, end = nextString(f.strings, text, from)
	}
	for i := range f.patterns {
		before := text
		if start >= 0 {
			before = text[:start] // a later one is of no interest
		}
		if s, e := f.patterns[i].next(before, from); s >= 0 {
			start, end = s, e
		}
	}
	return start, end
}

// nextString returns the first line from from on that holds what f finds.
func nextString(f finder, text []byte, from int) (start, end int) {
	i := f.find(text[from:])
	if i < 0 {
		return -1, 0
	}
	i += from - 1 // the last byte found, which is not a line feed
	return from + bytes.LastIndexByte(text[from:i], '\n') + 1, lineEnd(text, i)
}

// lineEnd returns the end of the line that byte i lies in.
func lineEnd(text []byte, i int) int {
	if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(text)
}

// next returns the first line from from on that matches.
func (p *pattern) next(text []byte, from int) (start, end int) {
	for from < len(text) {
		start, end = from, lineEnd(text, from)
		if p.prefix != nil {
			if start, end = nextString(p.prefix, text, from); start < 0 {
				return -1, 0
			}
		}
		if p.re.Match(withoutCR(text[start:end])) {
			return start, end
		}
		from = end + 1
	}
	return -1, 0
}

// withoutCR drops the carriage return of a line that ends as in DOS.
func withoutCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}
