package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/afstream/afstream/stream"
)

var (
	errBadJSON    = errors.New("not a JSON object")
	errNestedKey  = errors.New("key is an object or array")
	errNoWeight   = errors.New("weight is missing")
	errTextWeight = errors.New("weight is not a number")
)

// jsonRow reads an item from a line with one JSON object. encoding/json checks that it
// is one, without allocating; what follows may then rely on that and only has to find
// two members, where Unmarshal would build a map of all of them.
type jsonRow struct {
	key, weight string // names of members; weight may be empty
	scratch     []byte
}

func buildJSONL(c *content, r *rows, from stream.Position, o KeyedOptions) (decoder[Keyed], uint64, error) {
	if o.Key == "" {
		return nil, 0, fmt.Errorf("read %s: no key member given", r.input)
	}
	l := newLineReader(c, r)
	row := &jsonRow{key: o.Key, weight: o.Weight}
	if !r.skip {
		if err := row.checkFirst(l); err != nil {
			return nil, 0, err
		}
	}
	skip, err := l.rewind(from)
	return &rowDecoder[Keyed]{lineReader: l, parse: row.parse}, skip, err
}

// checkFirst fails for a first line without the wanted members, with their names: under
// the policy to fail the source would fail there anyway, but without this help and later.
func (r *jsonRow) checkFirst(l *lineReader) error {
	if err := l.fill(); err == io.EOF {
		return nil
	} else if err != nil {
		return err
	}
	line, _ := l.next()
	line = l.trimBOM(trimCR(line))
	l.r, l.line = 0, 0
	if len(bytes.TrimSpace(line)) == 0 || !isObject(line) {
		return nil // blank, or Read fails with the line's number
	}
	var names []string
	eachMember(line, func(name, _ []byte) {
		names = append(names, string(unquote(nil, name)))
	})
	if _, err := column("key", r.key, names); err != nil {
		return fmt.Errorf("read %s: %w", l.rows.input, err)
	}
	if r.weight == "" {
		return nil
	}
	if _, err := column("weight", r.weight, names); err != nil {
		return fmt.Errorf("read %s: %w", l.rows.input, err)
	}
	return nil
}

func isObject(line []byte) bool {
	i := skipSpace(line, 0)
	return i < len(line) && line[i] == '{' && json.Valid(line)
}

// parse sets dst from a line; false if the line is blank. Of members with the same name
// the last counts, as in encoding/json. The key may be a string, whose bytes it becomes,
// or a number, true or false, of which it becomes the text.
func (r *jsonRow) parse(line []byte, dst *Keyed) (bool, error) {
	if skipSpace(line, 0) == len(line) {
		return false, nil
	}
	if !isObject(line) {
		return false, errBadJSON
	}
	var key, weight []byte
	eachMember(line, func(name, value []byte) {
		if bytes.IndexByte(name, '\\') >= 0 {
			r.scratch = unquote(r.scratch[:0], name)
			name = r.scratch
		}
		if string(name) == r.key {
			key = value
		}
		if r.weight != "" && string(name) == r.weight {
			weight = value
		}
	})
	if err := r.setKey(key, dst); err != nil {
		return false, err
	}
	dst.Weight = 1
	if r.weight == "" {
		return true, nil
	}
	if len(weight) == 0 || weight[0] == 'n' {
		return false, errNoWeight
	}
	if weight[0] != '-' && weight[0]-'0' > 9 {
		return false, errTextWeight
	}
	var ok bool
	if dst.Weight, ok = parseWeight(weight); !ok {
		return false, weightError(weight)
	}
	return true, nil
}

// setKey sets the key from a JSON value, nil if there is none.
func (r *jsonRow) setKey(value []byte, dst *Keyed) error {
	if len(value) == 0 || value[0] == 'n' {
		return errMissingKey
	}
	switch value[0] {
	case '{', '[':
		return errNestedKey
	case '"':
		value = value[1 : len(value)-1]
		if bytes.IndexByte(value, '\\') >= 0 {
			r.scratch = unquote(r.scratch[:0], value)
			value = r.scratch
		}
		if len(value) == 0 {
			return errMissingKey
		}
	}
	dst.Key.set(value)
	dst.Hash = dst.Key.hash()
	return nil
}

// eachMember calls f with name (without quotes, escapes as they are) and value of each
// member of a valid JSON object. The function does not escape, nor do its variables.
func eachMember(object []byte, f func(name, value []byte)) {
	i := skipSpace(object, skipSpace(object, 0)+1)
	for object[i] != '}' {
		end := valueEnd(object, i)
		name := object[i+1 : end-1]
		i = skipSpace(object, skipSpace(object, end)+1) // over the colon
		end = valueEnd(object, i)
		f(name, object[i:end])
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
}

// skipSpace returns the index of the first byte from i that is not JSON white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// valueEnd returns the index after the valid JSON value that begins at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i // the end of what a number or name was in
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// unquote appends the inside of a valid JSON string with its escapes resolved. Unlike
// encoding/json it keeps bytes that are not UTF-8.
func unquote(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(s[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, followingEscape(s[i+1:]))
				if r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default: // quote, backslash, slash
			dst = append(dst, s[i])
		}
	}
	return dst
}

// followingEscape returns the code of the \u escape that s begins with, or an error rune.
func followingEscape(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return utf8.RuneError
	}
	return hex4(s[2:])
}

// hex4 reads four hexadecimal digits.
func hex4(s []byte) (r rune) {
	for _, c := range s[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}
