package connector

import (
	"bytes"
	"fmt"
	"io"

	"github.com/afstream/afstream/stream"
)

// maxLine is the length of the longest line, in bytes without its end.
const maxLine = 1 << 20

// lineBuf is how much is read at once; a longer line makes the buffer grow to it.
const lineBuf = 256 << 10

var errLongLine = fmt.Errorf("line is longer than %d bytes", maxLine)

// lineReader cuts a content into lines within one big buffer. Not a bufio.Scanner: that
// has no offsets, cannot go on after a line that is too long, and costs more per line.
type lineReader struct {
	c    *content
	rows *rows
	buf  []byte
	r, w int    // buf[r:w] is what has been read and not handed out
	base int64  // offset of buf[0] in the content
	size int64  // offset of the content's end, -1 until it is known
	line uint64 // lines handed out or dropped
	err  error  // what ended the content
	long bool   // within a line that is too long: drop up to its end
}

func newLineReader(c *content, r *rows) *lineReader {
	return &lineReader{c: c, rows: r, buf: make([]byte, lineBuf), size: -1}
}

// next returns the next line without its end, or false if fill must be called first. The
// line is valid until then.
func (l *lineReader) next() (line []byte, ok bool) {
	i := bytes.IndexByte(l.buf[l.r:l.w], '\n')
	if i < 0 {
		return nil, false
	}
	line = l.buf[l.r : l.r+i]
	l.r += i + 1
	l.line++
	return line, true
}

// fill reads on until there is a line for next, or returns io.EOF if there is none left,
// or the error that ends the source.
func (l *lineReader) fill() error {
	l.base += int64(l.r)
	l.w = copy(l.buf, l.buf[l.r:l.w])
	l.r = 0
	for l.err == nil {
		if l.w == len(l.buf) { // a line of maxLine bytes needs one more, for its end
			l.buf = append(l.buf, make([]byte, min(len(l.buf), maxLine+1-len(l.buf)))...)
		}
		n, err := l.c.Read(l.buf[l.w:])
		fresh := l.buf[l.w : l.w+n]
		l.w += n
		if l.long { // the buffer was empty before: fresh is all there is
			if end := bytes.IndexByte(fresh, '\n'); end < 0 {
				l.drop(l.w)
			} else {
				l.long = false
				l.drop(end + 1)
			}
			fresh = l.buf[:l.w]
		}
		found := bytes.IndexByte(fresh, '\n') >= 0 // there is none before fresh
		if !found && l.w > maxLine {
			l.long = true
			l.line++
			l.drop(l.w)
			if bad := l.rows.bad(l.line, errLongLine); bad != nil {
				return bad
			}
		}
		if err != nil {
			l.end(err)
		} else if found {
			return nil
		}
	}
	if l.w > 0 {
		return nil // the last line, to which end has given an end
	}
	return l.err
}

// drop forgets the first n bytes of the buffer, of which none was handed out.
func (l *lineReader) drop(n int) {
	l.base += int64(n)
	l.w = copy(l.buf, l.buf[n:l.w])
}

// end notes the end of the content. What is left in the buffer is the last line if the
// content is whole; of one that is cut off it is half a line, which must not be used.
func (l *lineReader) end(err error) {
	if err == io.EOF {
		l.err = err
		l.size = l.base + int64(l.w)
		if l.w > 0 && l.buf[l.w-1] != '\n' {
			l.buf = append(l.buf[:l.w], '\n')
			l.w++
		}
		return
	}
	l.w = bytes.LastIndexByte(l.buf[:l.w], '\n') + 1
	n := l.line + uint64(bytes.Count(l.buf[:l.w], []byte{'\n'})) + 1
	l.err = l.rows.broken(n, err)
}

// at implements part of decoder.
func (l *lineReader) at() (offset int64, line uint64) {
	offset = l.base + int64(l.r)
	if l.size >= 0 { // the end that was given to the last line is not in the content
		offset = min(offset, l.size)
	}
	return offset, l.line
}

// moveTo continues at a position of the same content, ahead of or within what has been
// read. It checks that a line begins there, as one must if the input is still the same.
func (l *lineReader) moveTo(p stream.Position) error {
	before := p.Offset - 1 // where the line before must end
	if before < l.base || before >= l.base+int64(l.w) {
		if err := l.c.skipTo(before); err != nil {
			return err
		}
		l.base, l.r, l.w, l.size, l.err, l.long = before, 0, 0, -1, nil, false
		if err := l.fill(); err != nil && err != io.EOF {
			return err
		}
	}
	l.r = int(before - l.base)
	last := l.size >= 0 && p.Offset == l.size
	if l.r >= l.w || (l.buf[l.r] != '\n' && !last) {
		return fmt.Errorf("%w: no line begins at offset %d; has the input changed?", ErrBadPosition, p.Offset)
	}
	l.r++
	if last {
		l.r = l.w
	}
	l.line = p.Line
	return nil
}

// rewind continues at a position for a decoder that has read its header, if it has one.
// It returns how many items are to be passed over: none unless the position has no
// offset to go by.
func (l *lineReader) rewind(p stream.Position) (skip uint64, err error) {
	if p.Offset <= 0 {
		return p.Item, nil
	}
	return 0, l.moveTo(p)
}

// trimCR drops the carriage return of a line that ends as in DOS.
func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// trimBOM drops the byte order mark that some editors put before the first line.
func (l *lineReader) trimBOM(line []byte) []byte {
	if l.line != 1 {
		return line
	}
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

// rowDecoder reads one item from each line. The call per line is cheap beside what the
// formats with columns do for it; text lines, which are not, have a loop of their own.
type rowDecoder[T any] struct {
	*lineReader
	// parse sets dst from a line without its end, returns false for lines that have no
	// item in them, and an error for bad ones.
	parse func(line []byte, dst *T) (bool, error)
}

func (d *rowDecoder[T]) read(dst []T) (int, error) {
	n := 0
	for n < len(dst) {
		line, ok := d.next()
		if !ok {
			if n > 0 { // do not hold items back while a pipe pauses
				return n, nil
			}
			if err := d.fill(); err != nil {
				return 0, err
			}
			continue
		}
		ok, err := d.parse(d.trimBOM(trimCR(line)), &dst[n])
		if err != nil {
			if err := d.rows.bad(d.line, err); err != nil {
				return n, err
			}
			continue
		}
		if ok {
			n++
		}
	}
	return n, nil
}

// Lines returns a source of the lines of a text file without their ends, for one
// partition. The path may be Stdin or Builtin and a name; gzip is unwrapped. Bytes that
// are not UTF-8 are kept. A line longer than 1 MiB, or a gzip stream that is cut off,
// fails the source. It allocates a string per line.
//
// The sources implement what those of OpenKeyed do; the input is first looked at when
// the job opens the source.
func Lines(path string) stream.NewSource[string] {
	return func(part, parts int) (stream.Source[string], error) {
		o := KeyedOptions{Path: path}
		if err := o.validate(); err != nil {
			return nil, err
		}
		in, err := openInput(path, nil, o.name())
		if err != nil {
			return nil, err
		}
		return newSource(in, false, buildLines)(part, parts)
	}
}

func buildLines(c *content, r *rows, from stream.Position) (decoder[string], uint64, error) {
	l := newLineReader(c, r)
	skip, err := l.rewind(from)
	return &rowDecoder[string]{lineReader: l, parse: func(line []byte, dst *string) (bool, error) {
		*dst = string(line)
		return true, nil
	}}, skip, err
}
