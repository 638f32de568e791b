package connector

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// fuzzFormat feeds any bytes to a format, under both policies: no panic, no item that
// sources never yield, an end, and failing stops where skipping first counts.
func fuzzFormat(f *testing.F, o KeyedOptions) {
	for _, s := range samples(f, 20) {
		f.Add(s.content)
	}
	f.Add([]byte("key,w\na,1\n"))
	f.Add([]byte(`{"key":"a","w":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		o.Reader, o.OnBad = bytes.NewReader(content), SkipBad
		s := open(t, o)
		lenient, err := drainAtMost(s, 1<<16)
		for _, it := range lenient {
			require.True(t, it.Weight >= 0 && !math.IsInf(it.Weight, 0))
			require.Equal(t, it.Key.Hash(), it.Hash)
		}
		o.Reader, o.OnBad = bytes.NewReader(content), FailOnBad
		strict, strictErr := drainAtMost(open(t, o), 1<<16)
		if err == nil && s.(Skipper).Skipped() == 0 {
			require.NoError(t, strictErr)
			require.Equal(t, lenient, strict)
			return
		}
		require.Error(t, strictErr)
		require.LessOrEqual(t, len(strict), len(lenient))
	})
}

var errTooMany = errors.New("more items than the fuzz test reads")

// drainAtMost reads a source that may have been told to have very many items.
func drainAtMost(s interface{ Read([]Keyed) (int, error) }, most int) (items []Keyed, err error) {
	dst := make([]Keyed, 64)
	for len(items) < most {
		n, err := s.Read(dst)
		items = append(items, dst[:n]...)
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return items, err
		}
	}
	return items, errTooMany
}

func FuzzText(f *testing.F) { fuzzFormat(f, KeyedOptions{Format: FormatText}) }

func FuzzCSV(f *testing.F) {
	fuzzFormat(f, KeyedOptions{Format: FormatCSV, Key: "key", Weight: "w"})
}

func FuzzJSONL(f *testing.F) {
	fuzzFormat(f, KeyedOptions{Format: FormatJSONL, Key: "key", Weight: "w"})
}

func FuzzPcap(f *testing.F) {
	fuzzFormat(f, KeyedOptions{Format: FormatPcap, Key: "flow", Weight: "bytes"})
}

func FuzzPcapNG(f *testing.F) {
	fuzzFormat(f, KeyedOptions{Format: FormatPcapNG, Key: "flow", Weight: "bytes"})
}

// FuzzParquet is bounded by its input's size only: see FormatParquet about page sizes.
func FuzzParquet(f *testing.F) {
	fuzzFormat(f, KeyedOptions{Format: FormatParquet, Key: "key", Weight: "w"})
}

// FuzzJSONRow holds the parser of one row against encoding/json.
func FuzzJSONRow(f *testing.F) {
	f.Add([]byte(`{"key":"\ud83d\ude00","x":[{"key":"}"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if utf8.Valid(line) { // encoding/json replaces what is not
			checkJSONRow(t, line)
		}
	})
}
