package connector

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

func openBlocks(t require.TestingT, o BlockOptions) stream.Source[Block] {
	s, err := Blocks(o)(0, 1)
	require.NoError(t, err)
	return s
}

func blockTexts(blocks []Block) (texts []string) {
	for _, b := range blocks {
		texts = append(texts, string(b.Text))
	}
	return texts
}

// TestBlocksHoldTheText: whatever the text, the blocks put together are the text, each begins where it says, and each
// ends where it may.
func TestBlocksHoldTheText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		o := BlockOptions{
			Path: path, Size: rapid.IntRange(MinBlockSize, 64).Draw(t, "size"),
			Cut: rapid.SampledFrom([]Cut{"", CutLines, CutBlanks}).Draw(t, "cut"),
		}
		require.NoError(t, os.WriteFile(path, text, 0o600))
		if rapid.Bool().Draw(t, "pipe") {
			o.Reader = iotest.OneByteReader(bytes.NewReader(text))
		}
		s := openBlocks(t, o)
		defer s.Close()
		blocks, err := drain(s, rapid.IntRange(1, 5).Draw(t, "batch"))
		require.NoError(t, err)
		at := 0
		for _, b := range blocks {
			require.Equal(t, int64(at), b.Offset)
			require.Equal(t, uint64(1+bytes.Count(text[:at], []byte{'\n'})), b.Line)
			require.True(t, bytes.HasPrefix(text[at:], b.Text))
			at += len(b.Text)
			if o.Cut == CutBlanks {
				require.LessOrEqual(t, len(b.Text), o.Size)
			} else if at < len(text) {
				require.Equal(t, byte('\n'), text[at-1])
				require.False(t, len(b.Text) > o.Size && bytes.Count(b.Text, []byte{'\n'}) > 1, "%q", b.Text)
			}
		}
		require.Equal(t, len(text), at)
	})
}

func drawText(t *rapid.T) []byte {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "bc", " ", "\n", "\r\n", "é", "漢", "\xff", "\xe6", strings.Repeat("x", 90)}), 0, 200)
	return []byte(strings.Join(pieces.Draw(t, "text"), ""))
}

// TestBlocksSeek: from any position come the same blocks, also through gzip, whose reads are short.
func TestBlocksSeek(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	rapid.Check(t, func(t *rapid.T) {
		content := drawText(t)
		if rapid.Bool().Draw(t, "gzip") {
			content = gzipped(t, content)
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
		o := BlockOptions{Path: path, Size: 20, Cut: rapid.SampledFrom([]Cut{CutLines, CutBlanks}).Draw(t, "cut")}
		s := openBlocks(t, o)
		defer s.Close()
		positions := []stream.Position{s.(stream.Replayable).Position()}
		var all []Block
		for dst := make([]Block, 1); ; {
			n, err := s.Read(dst)
			all = append(all, dst[:n]...)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			positions = append(positions, s.(stream.Replayable).Position())
		}
		p := rapid.SampledFrom(positions).Draw(t, "position")
		if rapid.Bool().Draw(t, "by item") {
			p = stream.Position{Item: p.Item}
		}
		again := openBlocks(t, o)
		defer again.Close()
		require.NoError(t, again.(stream.Replayable).Seek(p))
		rest, err := drain(again, 3)
		require.NoError(t, err)
		require.Equal(t, blockTexts(all[p.Item:]), blockTexts(rest))
		for i, b := range rest {
			require.Equal(t, all[int(p.Item)+i].Offset, b.Offset)
			require.Equal(t, all[int(p.Item)+i].Line, b.Line)
		}
		require.Equal(t, uint64(len(all)), again.(stream.Replayable).Position().Item)
	})
}

func gzipped(t require.TestingT, content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestBlocksOfALargeFile(t *testing.T) {
	var text strings.Builder
	for i := range 60_000 {
		text.WriteString(strings.Repeat("word ", i%7+1))
		text.WriteByte('\n')
	}
	path := writeFile(t, "large", []byte(text.String()))
	for _, cut := range []Cut{CutLines, CutBlanks} {
		s := openBlocks(t, BlockOptions{Path: path, Cut: cut})
		blocks, err := drain(s, 4)
		require.NoError(t, err)
		require.Equal(t, text.String(), strings.Join(blockTexts(blocks), ""))
		require.Less(t, len(blocks), text.Len()/DefaultBlockSize+2, "blocks are as long as they may be")
		done, total := s.(stream.Progresser).Progress()
		require.EqualValues(t, text.Len(), done)
		require.EqualValues(t, text.Len(), total)
		require.NoError(t, s.Close())
	}
}

func TestBlocksOfAPipeDoNotWait(t *testing.T) {
	r, w := io.Pipe()
	s := openBlocks(t, BlockOptions{Reader: r})
	defer s.Close()
	go func() {
		w.Write([]byte("one\ntwo"))
	}()
	dst := make([]Block, 2)
	n, err := s.Read(dst)
	require.NoError(t, err)
	require.Equal(t, []string{"one\n"}, blockTexts(dst[:n]))
}

func TestBlocksByteOrderMark(t *testing.T) {
	for _, text := range []string{"\xef\xbb\xbfone\n", "\xef\xbb\xbf"} {
		s := openBlocks(t, BlockOptions{Path: writeFile(t, "bom", []byte(text))})
		blocks, err := drain(s, 4)
		require.NoError(t, err)
		require.Equal(t, text[3:], strings.Join(blockTexts(blocks), ""))
		require.NoError(t, s.Close())
	}
}

// TestBlocksLongLine: 1 MiB is a line, one byte more is not, whatever comes before it and however it is read.
func TestBlocksLongLine(t *testing.T) {
	for _, before := range []string{"", "a\n", strings.Repeat("b", 300_000) + "\n"} {
		for _, after := range []string{"", "\n", "\nc\n"} {
			for extra, want := range []error{nil, errLongLine} {
				text := before + strings.Repeat("x", maxLine+extra) + after
				s := openBlocks(t, BlockOptions{Path: writeFile(t, "long", []byte(text))})
				blocks, err := drain(s, 4)
				require.ErrorIs(t, err, want)
				if want == nil {
					require.Equal(t, text, strings.Join(blockTexts(blocks), ""))
				}
				require.NoError(t, s.Close())
			}
		}
	}
}

func TestBlocksRefuse(t *testing.T) {
	good := writeFile(t, "text", []byte("one\ntwo\nthree"))
	for _, o := range []BlockOptions{{}, {Path: good, Size: 1}, {Path: good, Size: MaxBlockSize + 1}, {Path: good, Cut: "words"}} {
		_, err := Blocks(o)(0, 1)
		require.ErrorIs(t, err, ErrBlockOptions)
	}
	_, err := Blocks(BlockOptions{Path: good})(0, 2)
	require.ErrorContains(t, err, "one partition")
	_, err = Blocks(BlockOptions{Path: good + "-missing"})(0, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	s := openBlocks(t, BlockOptions{Path: good})
	defer s.Close()
	for _, p := range []stream.Position{{Item: 1, Offset: 5}, {Item: 1, Offset: 14}, {Item: 9}} {
		require.ErrorIs(t, s.(stream.Replayable).Seek(p), ErrBadPosition)
	}
	require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: 1, Offset: 13}))
	_, err = s.Read(make([]Block, 1))
	require.Equal(t, io.EOF, err)
}

// TestBlocksCutOffGzip: half a line is never handed out.
func TestBlocksCutOffGzip(t *testing.T) {
	whole := zipped(t, []byte(strings.Repeat("one two three\n", 1000)))
	s := openBlocks(t, BlockOptions{Path: writeFile(t, "cut.gz", whole[:len(whole)-9])})
	defer s.Close()
	blocks, err := drain(s, 4)
	require.ErrorIs(t, err, errCut)
	for _, b := range blocks {
		require.True(t, bytes.HasSuffix(b.Text, []byte("three\n")))
	}
}

func FuzzBlock(f *testing.F) {
	wire, _ := Block{Text: []byte("one\n"), Offset: 3, Line: 2}.AppendBinary(nil)
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		var b Block
		if err := b.UnmarshalBinary(wire); err != nil {
			require.ErrorIs(t, err, ErrBadBlock)
			require.Equal(t, Block{}, b)
			return
		}
		again, err := b.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, wire, again)
	})
}

func BenchmarkBlocks(b *testing.B) {
	path := writeFile(b, "text", bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog\n"), 1<<19))
	for _, size := range []int{256, DefaultBlockSize} {
		b.Run(map[int]string{256: "256", DefaultBlockSize: "64k"}[size], func(b *testing.B) {
			b.SetBytes(44 << 19)
			for range b.N {
				s := openBlocks(b, BlockOptions{Path: path, Size: size, Cut: CutBlanks})
				dst := make([]Block, 256)
				for {
					if _, err := s.Read(dst); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
				require.NoError(b, s.Close())
			}
		})
	}
}
