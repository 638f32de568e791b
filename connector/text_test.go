package connector

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []pair
	}{
		{"keys alone", "a\nb\na\n", []pair{{"a", 1}, {"b", 1}, {"a", 1}}},
		{"weights", "a 3\nb\t0.25\nc 1e3\nd +2\n", []pair{{"a", 3}, {"b", 0.25}, {"c", 1000}, {"d", 2}}},
		{"no end of line", "a\nb", []pair{{"a", 1}, {"b", 1}}},
		{"DOS lines", "a 1\r\nb\r\n\r\n", []pair{{"a", 1}, {"b", 1}}},
		{"blanks and blank lines", "\n  a \t 2  \n\t\n\n b\n", []pair{{"a", 2}, {"b", 1}}},
		{"byte order mark", "\xef\xbb\xbfa\n", []pair{{"a", 1}}},
		{"not UTF-8", "\xff\xfe 2\n", []pair{{"\xff\xfe", 2}}},
		{"one byte", "a", []pair{{"a", 1}}},
		{"only an end of line", "\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := KeyedOptions{Path: writeFile(t, "a.txt", []byte(c.content))}
			require.Equal(t, c.want, pairs(read(t, o)))
			o.Path = writeFile(t, "a.gz", zipped(t, []byte(c.content)))
			require.Equal(t, c.want, pairs(read(t, o)))
		})
	}
}

func TestTextBadLines(t *testing.T) {
	for _, bad := range []string{
		"b x", "b NaN", "b nan", "b Inf", "b -1", "b -Inf", "b 1e999", "b 0x10", "b 1_000", "b 1 2", "b .", "b 1.2.3", "b --1", "b 1e",
	} {
		content := "a 1\n\n" + bad + "\nc 2\n"
		path := writeFile(t, "a.txt", []byte(content))
		items, err := drain(open(t, KeyedOptions{Path: path}), 10)
		require.ErrorContains(t, err, fmt.Sprintf("read %q line 3: ", path), bad)
		require.Equal(t, []pair{{"a", 1}}, pairs(items), "what came before is delivered")

		s := open(t, KeyedOptions{Path: path, OnBad: SkipBad})
		items, err = drain(s, 10)
		require.NoError(t, err)
		require.Equal(t, []pair{{"a", 1}, {"c", 2}}, pairs(items))
		require.EqualValues(t, 1, s.(Skipper).Skipped())
	}
}

func TestErrorsAreSticky(t *testing.T) {
	s := open(t, KeyedOptions{Path: writeFile(t, "a.txt", []byte("a x\nb\n"))})
	_, err := s.Read(make([]Keyed, 5))
	require.Error(t, err)
	_, again := s.Read(make([]Keyed, 5))
	require.Equal(t, err, again)
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		name, content string
		skipped       int64
		keys, at      int // lines kept, and the line that fails
	}{
		{"longest", "a\n" + long + "\nb\n", 0, 3, 0},
		{"longest at the end", "a\n" + long, 0, 2, 0},
		{"too long", "a\n" + long + "x\nb\n", 1, 2, 2},
		{"too long at the end", "a\n" + long + "x", 1, 1, 2},
		{"much too long, then no end of line", long + long + long + "\nb", 1, 1, 1},
		{"two in a row", long + "x\n" + long + "x\nb\n", 2, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, "a.txt", []byte(c.content))
			s := open(t, KeyedOptions{Path: path, OnBad: SkipBad})
			items, err := drain(s, 10)
			require.NoError(t, err)
			require.Len(t, items, c.keys)
			require.Equal(t, c.skipped, s.(Skipper).Skipped())
			end := s.(stream.Replayable).Position()
			require.EqualValues(t, len(c.content), end.Offset)

			// A reader may tell the end along with the last bytes, or afterwards.
			together := iotest.DataErrReader(strings.NewReader(c.content))
			s = open(t, KeyedOptions{Reader: together, OnBad: SkipBad})
			again, err := drain(s, 10)
			require.NoError(t, err)
			require.Equal(t, items, again)
			require.Equal(t, c.skipped, s.(Skipper).Skipped())

			_, err = drain(open(t, KeyedOptions{Path: path}), 10)
			if c.at == 0 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errLongLine)
				require.ErrorContains(t, err, fmt.Sprintf("line %d:", c.at))
			}
		})
	}
}

func TestCutGzip(t *testing.T) {
	rng := 1 // text that does not compress to nothing
	var text strings.Builder
	for i := range 2000 {
		rng = rng * 48271 % 2147483647
		fmt.Fprintf(&text, "key%d %d\n", rng, i)
	}
	whole := zipped(t, []byte(text.String()))
	damaged := append([]byte{}, whole...)
	damaged[len(damaged)-6] ^= 1 // the checksum
	for name, content := range map[string][]byte{"cut": whole[:len(whole)/2], "header": whole[:5], "checksum": damaged} {
		path := writeFile(t, "a.txt.gz", content)
		s := open(t, KeyedOptions{Path: path, OnBad: SkipBad})
		items, err := drain(s, 10)
		require.NoError(t, err, name)
		require.EqualValues(t, 1, s.(Skipper).Skipped(), name)
		for i, it := range items {
			require.EqualValues(t, i, it.Weight, "half a line must not be an item")
		}
		factory, err := OpenKeyed(KeyedOptions{Path: path})
		if err == nil {
			s, err = factory(0, 1)
			require.NoError(t, err)
			_, err = drain(s, 10)
			require.NoError(t, s.Close())
			require.ErrorContains(t, err, fmt.Sprintf("line %d:", len(items)+1))
		}
		require.ErrorIs(t, err, errCut, name)
	}
}

func TestParseWeightAgreesWithStrconv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`[0-9]{1,18}(\.[0-9]{0,18})?`),
			rapid.StringMatching(`[+-]?[0-9.]{1,5}(e[+-]?[0-9]{1,3})?`),
			rapid.StringMatching(`[0-9a-fxXpPinf_.+-]{1,6}`),
		).Draw(t, "s")
		got, ok := parseWeight([]byte(s))
		want, err := strconv.ParseFloat(s, 64)
		if err != nil || want < 0 || math.IsInf(want, 0) || math.IsNaN(want) || strings.ContainsAny(s, "xXpP_") {
			require.False(t, ok)
			return
		}
		require.True(t, ok)
		require.Equal(t, math.Float64bits(want+0), math.Float64bits(got))
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("encoding/json's pool of scanners leaks under the race detector")
	}
	columns := KeyedOptions{Key: "key", Weight: "w"}
	for _, s := range []sample{
		{"a.txt", []byte(strings.Repeat("key 1.5\n", 9000)), KeyedOptions{}},
		{"a.csv", []byte("key,w\n" + strings.Repeat("\"k,\"\"e\"\"y\",1.5e-3\n", 9000)), columns},
		{"a.jsonl", []byte(strings.Repeat(`{"key":"k\u0065y","w":17}`+"\n", 9000)), columns},
		{"a.pcap", capture(t, 9000), KeyedOptions{Key: "flow", Weight: "bytes"}},
		{"a.pcapng", captureNG(t, 9000), KeyedOptions{Key: "flow"}},
		{"a.txt.gz", zipped(t, []byte(strings.Repeat("key 1.5\n", 9000))), KeyedOptions{}},
	} {
		s.o.Path = writeFile(t, s.name, s.content)
		src := open(t, s.o)
		dst := make([]Keyed, 16)
		_, err := src.Read(dst)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(500, func() { _, err = src.Read(dst) }), s.name)
		require.NoError(t, err)
	}
}

func TestLines(t *testing.T) {
	path := writeFile(t, "a.txt.gz", zipped(t, []byte("\xef\xbb\xbfone two\r\n\n\xff\nlast")))
	s, err := Lines(path)(0, 1)
	require.NoError(t, err)
	defer s.Close()
	got, err := drain(s, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"one two", "", "\xff", "last"}, got)
	require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: 2}))
	got, err = drain(s, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"\xff", "last"}, got)

	_, err = Lines(path+"x")(0, 1)
	require.ErrorContains(t, err, "no such file")
}

// FuzzTextQuick compares the two ways to parse a line: what the quick one takes, the general one takes alike.
func FuzzTextQuick(f *testing.F) {
	for _, s := range []string{"k 1\n", "key\n", "k\t12\n", "k 1.5\n", "k 123456789012345\n", "k 1234567890123456\n", " k\n", "k  1\n", "k 1 \n",
		"k\x00 1\n", "k\x001\n", "\n", "k \n", "k 1\r\n", "0123456789012345678901234567890123456789 7\n", "012345678901234567890123456789012345678 7\n",
		"\xff\xfe 3\n", "\x80\x21\x1f 3\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var window [quickWindow]byte
		copy(window[:], data)
		var quick, general Keyed
		size := parseQuick(&window, &quick)
		if size == 0 {
			return
		}
		end := bytes.IndexByte(window[:], '\n')
		require.Equal(t, end+1, size)
		ok, err := parseText(window[:end], &general)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, general, quick)
	})
}
