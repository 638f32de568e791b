package connector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/afstream/afstream/stream"
)

var (
	// ErrBlockOptions is wrapped by the errors of Blocks about its options.
	ErrBlockOptions = errors.New("connector: invalid block options")

	// ErrBadBlock is returned when bytes that should hold an encoded Block do not.
	ErrBadBlock = errors.New("connector: malformed block")
)

// Block is a piece of text: whole lines, or whole words. What costs something per item costs nothing per byte if the
// items are blocks.
type Block struct {
	// Text must not be changed: it shares its memory with other blocks.
	Text []byte
	// Offset is where Text begins in the input (in what gzip unwraps to).
	Offset int64
	// Line is the number of the line that Text begins in, 1 for the first.
	Line uint64
}

// Cut is where Blocks may end a block.
type Cut string

const (
	// CutLines ends blocks at the ends of lines only; a line longer than a block gets a block of its own. The zero Cut
	// means the same.
	CutLines Cut = "lines"
	// CutBlanks ends blocks after any ASCII white space, so that no block is longer than the size asked for: what is
	// longer without a blank is cut between two characters.
	CutBlanks Cut = "blanks"
)

// Sizes of a block.
const (
	DefaultBlockSize = 64 << 10
	MinBlockSize     = 16
	MaxBlockSize     = maxLine
)

// BlockOptions say what Blocks reads.
type BlockOptions struct {
	// Path is a file, Stdin, or Builtin and a name. Required unless Reader is set, with which it only names the input
	// in errors.
	Path string
	// Reader is read instead of a file, once: the source cannot be opened again or replayed.
	Reader io.Reader
	// Size is how many bytes a block has at most, MinBlockSize to MaxBlockSize; 0 is DefaultBlockSize. Blocks are as
	// long as Size and Cut allow.
	Size int
	// Cut is where blocks end.
	Cut Cut
}

func (o BlockOptions) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrBlockOptions}, args...)...))
		}
	}
	check(o.Path != "" || o.Reader != nil, "neither a path nor a reader")
	check(o.Size == 0 || o.Size >= MinBlockSize && o.Size <= MaxBlockSize,
		"size %d, want %d to %d", o.Size, MinBlockSize, MaxBlockSize)
	check(o.Cut == "" || o.Cut == CutLines || o.Cut == CutBlanks, "cut %q, want %q or %q", o.Cut, CutLines, CutBlanks)
	return errors.Join(faults...)
}

// Blocks returns a source of a text file in blocks, for one partition; gzip is unwrapped and a byte order mark at the
// beginning left out. The concatenation of the blocks is the rest of the text, byte for byte. A line longer than 1 MiB
// fails the source if blocks end at lines.
//
// The sources implement stream.Progresser and, for regular files and builtin inputs, stream.Replayable with a position
// that costs no reading to return to. Where a block of such a source ends depends on the bytes alone; a pipe yields
// shorter blocks rather than wait for more. One allocation serves 256 KiB of blocks.
func Blocks(o BlockOptions) stream.NewSource[Block] {
	return func(part, parts int) (stream.Source[Block], error) {
		if err := o.validate(); err != nil {
			return nil, err
		}
		name := KeyedOptions{Path: o.Path, Reader: o.Reader}
		in, err := openInput(o.Path, o.Reader, name.name())
		if err != nil {
			return nil, err
		}
		return newSource(in, false, o.build(in.replays))(part, parts)
	}
}

func (o BlockOptions) build(replays bool) build[Block] {
	return func(c *content, r *rows, from stream.Position) (decoder[Block], uint64, error) {
		b := &blockReader{c: c, rows: r, size: o.Size, lines: o.Cut != CutBlanks, replays: replays}
		if b.size == 0 {
			b.size = DefaultBlockSize
		}
		if from.Offset <= 0 {
			return b, from.Item, nil
		}
		return b, 0, b.moveTo(from)
	}
}

// byteOrderMark is what some editors put before the first line.
const byteOrderMark = "\xef\xbb\xbf"

// blockArena is how much is allocated and read at once.
const blockArena = 256 << 10

// blockReader cuts a content into blocks. They alias its buffer, of which no byte is written twice: a full one is left
// to the blocks and another begun.
type blockReader struct {
	c       *content
	rows    *rows
	size    int
	lines   bool // blocks end at lines
	replays bool

	buf  []byte
	r, w int    // buf[r:w] has been read and not handed out
	base int64  // offset of buf[0] in the content
	line uint64 // newlines handed out
	err  error  // what ended the content
}

// read implements decoder.
func (b *blockReader) read(dst []Block) (int, error) {
	n := 0
	for n < len(dst) {
		text := b.next()
		if text == nil {
			if n > 0 { // do not hold items back while a pipe pauses
				return n, nil
			}
			if err := b.fill(); err != nil {
				return 0, err
			}
			continue
		}
		if b.lines && len(bytes.TrimSuffix(text, []byte{'\n'})) > maxLine {
			return n, b.tooLong()
		}
		block := Block{Text: text, Offset: b.base + int64(b.r), Line: b.line + 1}
		b.r += len(text)
		b.line += uint64(bytes.Count(text, []byte{'\n'}))
		if block.Offset == 0 && bytes.HasPrefix(text, []byte(byteOrderMark)) {
			block.Text, block.Offset = text[len(byteOrderMark):], int64(len(byteOrderMark))
		}
		if len(block.Text) > 0 {
			dst[n] = block
			n++
		}
	}
	return n, nil
}

// next returns the next block, or nil if fill must be called first.
func (b *blockReader) next() []byte {
	have := b.buf[b.r:b.w]
	window := have[:min(len(have), b.size)]
	full := len(have) >= b.size
	n := 0
	switch {
	case full || !b.replays && b.err == nil: // whether the end is known yet must not matter if it replays
		n = b.lastCut(window)
	case b.err != nil:
		n = len(have)
	}
	if n == 0 && full {
		n = b.longCut(have)
	}
	if n == 0 && b.err != nil {
		n = len(have)
	}
	if n == 0 {
		return nil
	}
	return have[:n:n]
}

// lastCut returns the length of the longest block that window holds, 0 for none.
func (b *blockReader) lastCut(window []byte) int {
	if b.lines {
		return bytes.LastIndexByte(window, '\n') + 1
	}
	n := len(window)
	for n > 0 && !asciiSpace(window[n-1]) {
		n--
	}
	return n
}

// longCut returns the length of a block without a place to cut within the size, 0 if more must be read to tell.
func (b *blockReader) longCut(have []byte) int {
	if b.lines {
		if i := bytes.IndexByte(have[b.size:], '\n'); i >= 0 {
			return b.size + i + 1
		}
		return 0
	}
	n := b.size // invalid UTF-8 is cut anywhere
	for back := 1; back < utf8.UTFMax; back++ {
		if c := have[n-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(have[n-back : n]) {
				n -= back
			}
			break
		}
	}
	return n
}

func asciiSpace(c byte) bool { return c == ' ' || c-'\t' <= '\r'-'\t' }

// fill reads on, at least one byte, or returns what ends the source.
func (b *blockReader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.lines && b.w-b.r > maxLine {
		return b.tooLong()
	}
	b.makeRoom()
	for {
		n, err := b.c.Read(b.buf[b.w:])
		b.w += n
		if err != nil {
			b.end(err)
		}
		if n > 0 || err != nil {
			return nil
		}
	}
}

// tooLong ends the source at a line that is longer than a line may be.
func (b *blockReader) tooLong() error {
	b.err, b.r = b.rows.fail(b.line+1, errLongLine), b.w
	return b.err
}

// makeRoom begins another buffer if the one in use is full.
func (b *blockReader) makeRoom() {
	if b.w < len(b.buf) {
		return
	}
	rest := b.buf[b.r:b.w]
	buf := make([]byte, max(blockArena, 2*b.size, 2*len(rest)))
	b.base += int64(b.r)
	b.r, b.w = 0, copy(buf, rest)
	b.buf = buf
}

// end notes the end of the content. Of one that is cut off, the last line is half a line and must not be used.
func (b *blockReader) end(err error) {
	b.err = err
	if err == io.EOF {
		return
	}
	b.w = b.r + bytes.LastIndexByte(b.buf[b.r:b.w], '\n') + 1
	b.err = b.rows.broken(b.line+uint64(bytes.Count(b.buf[b.r:b.w], []byte{'\n'}))+1, err)
}

// at implements decoder.
func (b *blockReader) at() (offset int64, line uint64) { return b.base + int64(b.r), b.line }

// moveTo continues at a position. Where blocks end at lines it checks that one begins there, as it must if the input
// is still the same.
func (b *blockReader) moveTo(p stream.Position) error {
	before := p.Offset - 1
	if err := b.c.skipTo(before); err != nil {
		return err
	}
	b.base, b.line = before, p.Line
	for b.w == 0 && b.err == nil {
		if err := b.fill(); err != nil {
			return err
		}
	}
	if b.w == 0 {
		return fmt.Errorf("%w: offset %d is beyond the end", ErrBadPosition, p.Offset)
	}
	b.r = 1
	for b.lines && b.buf[0] != '\n' { // right only at the end of a content without a last newline
		if b.w > b.r {
			return fmt.Errorf("%w: no line begins at offset %d; has the input changed?", ErrBadPosition, p.Offset)
		}
		if b.err != nil {
			return nil
		}
		if err := b.fill(); err != nil {
			return err
		}
	}
	return nil
}

// blockHeader is the fixed part of an encoded Block.
const blockHeader = 16

// AppendBinary appends the wire form of b; the error is always nil. It implements encoding.BinaryAppender.
func (b Block) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Offset))
	dst = binary.LittleEndian.AppendUint64(dst, b.Line)
	return append(dst, b.Text...), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrBadBlock and leaves b as
// it was. It implements encoding.BinaryUnmarshaler.
func (b *Block) UnmarshalBinary(src []byte) error {
	if len(src) < blockHeader {
		return fmt.Errorf("%w: %d bytes", ErrBadBlock, len(src))
	}
	offset := int64(binary.LittleEndian.Uint64(src))
	if offset < 0 {
		return fmt.Errorf("%w: offset %d", ErrBadBlock, offset)
	}
	*b = Block{Text: bytes.Clone(src[blockHeader:]), Offset: offset, Line: binary.LittleEndian.Uint64(src[8:])}
	return nil
}
