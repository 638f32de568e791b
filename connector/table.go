package connector

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/afstream/afstream/stream"
)

// Column is one column of a Table.
type Column[T any] struct {
	// Title heads the column.
	Title string
	// Value returns the cell of an item. Characters that do not print, such as the
	// escapes with which data could control a terminal, are shown as \x1b and so on.
	Value func(item T) string
	// Number aligns the column to the right.
	Number bool
}

// Table returns a sink that writes an aligned text table to w when it is closed: a line
// of titles and then one line per item. It keeps all cells in memory until then, so it
// is for results of a size that a person reads. Each partition writes a table of its
// own. w is not closed.
func Table[T any](w io.Writer, columns ...Column[T]) stream.NewSink[T] {
	return func(int, int) (stream.Sink[T], error) {
		if len(columns) == 0 {
			return nil, errors.New("connector: table without columns")
		}
		s := &tableSink[T]{values: make([]func(item T) string, len(columns)), table: table{w: w}}
		for i, c := range columns {
			if c.Value == nil {
				return nil, fmt.Errorf("connector: table column %q has no value", c.Title)
			}
			s.values[i] = c.Value
			s.table.head(c.Title, c.Number)
		}
		return s, nil
	}
}

type tableSink[T any] struct {
	values []func(item T) string // by column
	table  table                 // not embedded: its methods would be compiled as those of each sink again
}

func (s *tableSink[T]) Write(items []T) error {
	for _, item := range items {
		for i, value := range s.values {
			s.table.add(i, value(item))
		}
	}
	return nil
}

// Close writes the table, once.
func (s *tableSink[T]) Close() error { return s.table.close() }

// table is what a tableSink knows without the type of its items.
type table struct {
	w       io.Writer
	numbers []bool // by column: aligned to the right
	widths  []int
	cells   []string // row by row, titles first
	closed  bool
}

// head adds a column, before any cell.
func (s *table) head(title string, number bool) {
	s.numbers = append(s.numbers, number)
	s.widths = append(s.widths, 0)
	s.add(len(s.widths)-1, title)
}

// add appends the next cell, which is of column i.
func (s *table) add(i int, cell string) {
	cell = printable(cell)
	s.widths[i] = max(s.widths[i], utf8.RuneCountInString(cell))
	s.cells = append(s.cells, cell)
}

func (s *table) close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	w := bufio.NewWriter(s.w)
	last := len(s.widths) - 1
	for n, cell := range s.cells {
		i := n % len(s.widths)
		pad := s.widths[i] - utf8.RuneCountInString(cell)
		switch {
		case s.numbers[i]:
			cell = strings.Repeat(" ", pad) + cell
		case i < last: // no blanks at the end of a line
			cell += strings.Repeat(" ", pad)
		}
		w.WriteString(cell)
		if i < last {
			w.WriteString("  ")
		} else {
			w.WriteByte('\n')
		}
	}
	if err := w.Flush(); err != nil { // keeps the first error of all the writes
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// printable replaces what does not print by its escape, invalid UTF-8 included.
func printable(s string) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case clean(r):
			b.WriteString(s[:size])
		case size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}
