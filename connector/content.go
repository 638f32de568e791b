package connector

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"

	"github.com/afstream/afstream/data"
)

// input is where a source's bytes come from, and can be opened again if it replays.
type input struct {
	name    string // as errors call it
	path    string // for its extension; may be empty
	replays bool
	open    func(m *meter) (io.ReadCloser, error)
}

// meter counts the bytes (for Parquet the rows) of the current content for Progress.
type meter struct{ done, total atomic.Int64 }

// content is one opening of an input, gzip already unwrapped if there is any.
type content struct {
	raw   io.ReadCloser
	meter *meter
	head  []byte        // bytes of raw that were looked at and not yet read
	ahead []byte        // the same for the unwrapped content
	pos   int64         // bytes of the unwrapped content that were read
	gz    *gzip.Reader  // nil if raw is plain
	plain io.ReadSeeker // raw if Seek in it is a Seek in the content, else nil
}

// errCut marks a content that ends where it should not, or whose checksum is wrong: bad
// data under the policy for bad rows, unlike an error of the device it is read from.
var errCut = errors.New("input is cut off or damaged")

// errReader marks an error of the reader that the bytes come from.
var errReader = errors.New("input failed")

// newContent looks whether raw is compressed.
func newContent(raw io.ReadCloser, m *meter) (*content, error) {
	c := &content{raw: raw, meter: m}
	head := make([]byte, 2)
	n, err := io.ReadFull(raw, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	c.head = head[:n]
	if string(c.head) == "\x1f\x8b" {
		if c.gz, err = gzip.NewReader(rawReader{c}); err != nil {
			return nil, gzipError(err)
		}
		return c, nil
	}
	c.plain, _ = raw.(io.ReadSeeker)
	return c, nil
}

// rawReader reads the bytes of a content before they are unwrapped, and counts them.
type rawReader struct{ *content }

func (r rawReader) Read(p []byte) (n int, err error) {
	if len(r.head) > 0 {
		n = copy(p, r.head)
		r.head = r.head[n:]
	} else if n, err = r.raw.Read(p); err != nil && err != io.EOF && !fromDevice(err) {
		err = fmt.Errorf("%w: %w", errReader, err) // a reader of the caller's
	}
	r.meter.done.Add(int64(n))
	return n, err
}

// Read reads the unwrapped content.
func (c *content) Read(p []byte) (n int, err error) {
	switch {
	case len(c.ahead) > 0:
		n = copy(p, c.ahead)
		c.ahead = c.ahead[n:]
	case c.gz == nil:
		n, err = rawReader{c}.Read(p)
	default:
		if n, err = c.gz.Read(p); err != nil && err != io.EOF {
			err = gzipError(err)
		}
	}
	c.pos += int64(n)
	return n, err
}

// gzipError tells damage of a gzip stream from errors of what it is read from.
func gzipError(err error) error {
	if fromDevice(err) {
		return fmt.Errorf("gzip: %w", err)
	}
	return damage("gzip", err)
}

// damage makes an error that a parser returned one of bad data.
func damage(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w: unexpected end", what, errCut)
	}
	return fmt.Errorf("%s: %w: %w", what, errCut, err)
}

// fromDevice says whether an error came from reading the file rather than from what is
// in it.
func fromDevice(err error) bool {
	var pathErr *fs.PathError
	return errors.As(err, &pathErr) || errors.Is(err, ErrClosed) || errors.Is(err, errReader)
}

// skipTo moves to an offset of what the content unwraps to, backwards only if it is
// plain. Past the end, or back, it returns ErrBadPosition.
func (c *content) skipTo(offset int64) error {
	if c.plain == nil {
		if offset < c.pos {
			return fmt.Errorf("%w: offset %d", ErrBadPosition, offset)
		}
		_, err := io.CopyN(io.Discard, c, offset-c.pos)
		if err == io.EOF {
			return fmt.Errorf("%w: offset %d of %d", ErrBadPosition, offset, c.pos)
		}
		return err
	}
	size, err := c.plain.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if offset > size {
		return fmt.Errorf("%w: offset %d of %d", ErrBadPosition, offset, size)
	}
	if _, err = c.plain.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	c.head, c.ahead, c.pos = nil, nil, offset
	c.meter.done.Store(offset)
	return nil
}

// openInput finds out what a path means. Regular files and builtin inputs replay.
func openInput(path string, reader io.Reader, name string) (input, error) {
	in := input{name: name, path: path}
	if reader != nil {
		in.open = openOnce(name, reader)
		return in, nil
	}
	if path == Stdin {
		// Standard input stays open for whoever else uses it: a pump ends by itself.
		in.open = openOnce(name, struct{ io.Reader }{os.Stdin})
		return in, nil
	}
	if builtin, ok := strings.CutPrefix(path, Builtin); ok {
		return openBuiltin(in, builtin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return in, fmt.Errorf("open input: %w", err)
	}
	if info.IsDir() {
		return in, fmt.Errorf("open input %q: is a directory", path)
	}
	if !info.Mode().IsRegular() { // a named pipe or a device
		in.open = func(*meter) (io.ReadCloser, error) { return newPump(&lateFile{path: path}), nil }
		return in, nil
	}
	in.replays = true
	in.open = func(m *meter) (io.ReadCloser, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open input: %w", err)
		}
		if info, err := f.Stat(); err == nil {
			m.total.Store(info.Size())
		}
		return f, nil
	}
	return in, nil
}

// openBuiltin opens an input of package data.
func openBuiltin(in input, builtin string) (input, error) {
	file, ok := data.Lookup(builtin)
	if !ok {
		return in, unknown("builtin input", builtin, data.Names())
	}
	in.path, in.replays = file.Name, true
	in.open = func(m *meter) (io.ReadCloser, error) {
		m.total.Store(int64(len(file.Content)))
		return memory{strings.NewReader(file.Content)}, nil
	}
	return in, nil
}

// memory is an input that lies in memory.
type memory struct{ *strings.Reader }

func (memory) Close() error { return nil }

// openOnce opens a reader, which has no second beginning.
func openOnce(name string, r io.Reader) func(*meter) (io.ReadCloser, error) {
	var used atomic.Bool
	return func(*meter) (io.ReadCloser, error) {
		if used.Swap(true) {
			return nil, fmt.Errorf("open %s: it was read before and cannot be read again", name)
		}
		return newPump(r), nil
	}
}

// peekLen is how much of a content format detection looks at, if it is there.
const peekLen = 4096

// peek returns the first bytes of a fresh content, which stay to be read. Of a stream
// that pauses they are what has arrived, but at least so many, unless it ends. The error
// matters only if there are none; otherwise Read returns it in its turn.
func (c *content) peek(least int) ([]byte, error) {
	buf := make([]byte, peekLen)
	n, err := io.ReadAtLeast(c, buf, least)
	c.ahead, c.pos = buf[:n], 0
	return c.ahead, err
}
