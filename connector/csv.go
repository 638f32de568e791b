package connector

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/afstream/afstream/stream"
)

var (
	errMissingKey = errors.New("key is missing")
	errOpenQuote  = errors.New("quote is not closed within the line")
	errStrayQuote = errors.New("quote within a field")
)

// csvRow reads an item from a line of delimited fields. encoding/csv is not used: it
// lets one stray quote swallow all lines up to the next quote, and allocates per record.
type csvRow struct {
	comma       byte
	key, weight int // indexes of columns, weight -1 for none
	fields      int // how many each row must have
	scratch     []byte
}

// buildCSV reads the header, or counts the fields of the first row where there is none.
func buildCSV(c *content, r *rows, from stream.Position, o KeyedOptions, comma byte) (decoder[Keyed], uint64, error) {
	l := newLineReader(c, r)
	first, ok := l.next()
	for !ok {
		if err := l.fill(); err == io.EOF {
			return emptyDecoder[Keyed]{}, from.Item, nil
		} else if err != nil {
			return nil, 0, err
		}
		first, ok = l.next()
	}
	row := &csvRow{comma: comma}
	names, err := row.split(l.trimBOM(trimCR(first)))
	if err != nil {
		return nil, 0, r.fail(l.line, err)
	}
	header, err := row.columns(names, o)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", r.input, err)
	}
	if !header { // it was read only to count its fields
		l.r, l.line = 0, 0
	}
	skip, err := l.rewind(from)
	return &rowDecoder[Keyed]{lineReader: l, parse: row.parse}, skip, err
}

// columns finds the wanted columns. It returns false if the first line is no header: if
// the key is a number and no column has that name.
func (r *csvRow) columns(names []string, o KeyedOptions) (header bool, err error) {
	r.fields, r.weight = len(names), -1
	if n, err := strconv.Atoi(o.Key); err == nil && !slices.Contains(names, o.Key) {
		if r.key, err = r.number("key", n); err != nil || o.Weight == "" {
			return false, err
		}
		n, err := strconv.Atoi(o.Weight)
		if err != nil {
			return false, fmt.Errorf("weight column %q: must be a number as the key column is", o.Weight)
		}
		r.weight, err = r.number("weight", n)
		return false, err
	}
	if r.key, err = column("key", o.Key, names); err != nil || o.Weight == "" {
		return true, err
	}
	r.weight, err = column("weight", o.Weight, names)
	return true, err
}

// number checks a column number from 1 and returns its index.
func (r *csvRow) number(what string, n int) (int, error) {
	if n < 1 || n > r.fields {
		return 0, fmt.Errorf("%s column %d: there are columns 1 to %d", what, n, r.fields)
	}
	return n - 1, nil
}

// column finds a column by name.
func column(what, name string, names []string) (int, error) {
	if name == "" {
		return 0, fmt.Errorf("no %s column given: there are %s", what, strings.Join(names, ", "))
	}
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, unknown(what+" column", name, names)
}

// split returns all fields of a line.
func (r *csvRow) split(line []byte) (fields []string, err error) {
	for more := true; more; {
		var field []byte
		if field, line, more, err = r.field(line); err != nil {
			return nil, err
		}
		fields = append(fields, string(field))
	}
	return fields, nil
}

// parse sets dst from a line; false if the line is empty.
func (r *csvRow) parse(line []byte, dst *Keyed) (bool, error) {
	if len(line) == 0 {
		return false, nil
	}
	dst.Weight = 1
	i := 0
	for more := true; more; i++ {
		var field []byte
		var err error
		if field, line, more, err = r.field(line); err != nil {
			return false, err
		}
		if i == r.key {
			if len(field) == 0 {
				return false, errMissingKey
			}
			dst.Key.set(field)
			dst.Hash = dst.Key.hash()
		}
		if i == r.weight {
			var ok bool
			if dst.Weight, ok = parseWeight(field); !ok {
				return false, weightError(field)
			}
		}
	}
	if i != r.fields {
		return false, fmt.Errorf("%d fields, want %d", i, r.fields)
	}
	return true, nil
}

// field cuts the first field off a line; more says that another follows. The field may
// alias the line or the scratch space.
func (r *csvRow) field(line []byte) (field, rest []byte, more bool, err error) {
	if len(line) > 0 && line[0] == '"' {
		return r.quoted(line[1:])
	}
	for i, c := range line {
		if c == r.comma {
			return line[:i], line[i+1:], true, nil
		}
		if c == '"' {
			return nil, nil, false, errStrayQuote
		}
	}
	return line, nil, false, nil
}

// quoted is field for what follows an opening quote.
func (r *csvRow) quoted(line []byte) (field, rest []byte, more bool, err error) {
	r.scratch = r.scratch[:0]
	for {
		i := bytes.IndexByte(line, '"')
		if i < 0 {
			return nil, nil, false, errOpenQuote
		}
		field, rest = line[:i], line[i+1:]
		if len(rest) > 0 && rest[0] == '"' { // two quotes stand for one
			r.scratch = append(r.scratch, line[:i+1]...)
			line = rest[1:]
			continue
		}
		if len(r.scratch) > 0 {
			r.scratch = append(r.scratch, field...)
			field = r.scratch
		}
		if len(rest) == 0 {
			return field, nil, false, nil
		}
		if rest[0] != r.comma {
			return nil, nil, false, errStrayQuote
		}
		return field, rest[1:], true, nil
	}
}
