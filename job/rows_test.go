package job

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// flawed is a replayable input of rows of which some are bad: the sources of package connector in small.
type flawed struct {
	rows    []bool // true: good
	at      int
	items   uint64
	skipped int64
}

func (f *flawed) Read(dst []connector.Keyed) (int, error) {
	n := 0
	for ; f.at < len(f.rows) && n < len(dst); f.at++ {
		if f.rows[f.at] {
			n++
		} else {
			f.skipped++
		}
	}
	f.items += uint64(n)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *flawed) Close() error   { return nil }
func (f *flawed) Skipped() int64 { return f.skipped }
func (f *flawed) Ignored() int64 { return 0 }
func (f *flawed) Position() stream.Position {
	return stream.Position{Item: f.items, Line: uint64(f.at)}
}
func (f *flawed) Seek(p stream.Position) error {
	f.at, f.items = int(p.Line), p.Item
	return nil
}

// TestRowCountCountsEachRowOnce fails and reopens the source at random, as the runtime does: at a position that it had
// between two reads, or from the beginning without a Seek.
func TestRowCountCountsEachRowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "rows")
		var c rowCount
		open := count(&c, func(int, int) (stream.Source[connector.Keyed], error) { return &flawed{rows: rows}, nil })
		positions := []stream.Position{{}}
		s, err := open(0, 1)
		require.NoError(t, err)
		for {
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				if rapid.Bool().Draw(t, "anew") {
					s, err = open(0, 1)
					require.NoError(t, err)
				}
				to := positions[rapid.IntRange(0, len(positions)-1).Draw(t, "to")]
				if to != (stream.Position{}) || rapid.Bool().Draw(t, "seek") {
					require.NoError(t, s.(stream.Replayable).Seek(to))
				} else if s, err = open(0, 1); err != nil {
					require.NoError(t, err)
				}
			}
			_, err := s.Read(make([]connector.Keyed, rapid.IntRange(1, 9).Draw(t, "size")))
			positions = append(positions, s.(stream.Replayable).Position())
			if err == io.EOF {
				break
			}
		}
		var bad int64
		for _, good := range rows {
			if !good {
				bad++
			}
		}
		skipped, ignored := c.totals()
		require.Equal(t, bad, skipped)
		require.Zero(t, ignored)
	})
}

func TestRowCountKeepsWhatASourceCanDo(t *testing.T) {
	var c rowCount
	for _, replays := range []bool{true, false} {
		o := connector.KeyedOptions{Path: connector.Builtin + "cip.pcap"}
		if !replays {
			o = connector.KeyedOptions{Reader: strings.NewReader("a 1\n")}
		}
		open, err := connector.OpenKeyed(o)
		require.NoError(t, err)
		s, err := count(&c, open)(0, 1)
		require.NoError(t, err)
		_, ok := s.(stream.Replayable)
		require.Equal(t, replays, ok)
		_, ok = s.(stream.Progresser)
		require.True(t, ok)
		require.NoError(t, s.Close())
	}
}
