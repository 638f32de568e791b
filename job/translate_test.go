package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

var errOdd = errors.New("odd")

// halves translates lines with even numbers to their halves; # begins a comment.
func halves(skip bool, most uint64) translation[string, int] {
	return translation[string, int]{name: "numbers", skip: skip, most: most, convert: func(line string) (int, bool, error) {
		if strings.HasPrefix(line, "#") {
			return 0, false, nil
		}
		n, err := strconv.Atoi(line)
		if err == nil && n%2 != 0 {
			err = errOdd
		}
		return n / 2, true, err
	}}
}

// TestTranslationsResume reads a text of good, bad and empty lines and goes back to where it was at random, as the runtime
// does after failures, with the same source or a new one.
func TestTranslationsResume(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var want []int
		most := rapid.Uint64Range(0, 30).Draw(t, "most")
		for range rapid.IntRange(0, 60).Draw(t, "lines") {
			n := rapid.IntRange(-3, 9).Draw(t, "n")
			if n < 0 {
				text.WriteString("# " + strconv.Itoa(n) + "\n")
				continue
			}
			fmt.Fprintln(&text, n)
			if n%2 == 0 && (most == 0 || uint64(len(want)) < most) {
				want = append(want, n/2)
			}
		}
		path := filepath.Join(dir, "text")
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
		open := halves(true, most).open(connector.Lines(path))
		s, err := open(0, 1)
		require.NoError(t, err)
		positions := []stream.Position{{}}
		var got []int
		for {
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				if rapid.Bool().Draw(t, "anew") {
					require.NoError(t, s.Close())
					s, err = open(0, 1)
					require.NoError(t, err)
				}
				to := positions[rapid.IntRange(0, len(positions)-1).Draw(t, "to")]
				require.NoError(t, s.(stream.Replayable).Seek(to))
				got = got[:to.Item]
			}
			dst := make([]int, rapid.IntRange(1, 9).Draw(t, "size"))
			n, err := s.Read(dst)
			require.True(t, n > 0 || err != nil, "no items without an error are a fault")
			got = append(got, dst[:n]...)
			p := s.(stream.Replayable).Position()
			require.EqualValues(t, len(got), p.Item)
			positions = append(positions, p)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
		require.NoError(t, s.Close())
		require.Equal(t, len(want), len(got))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
	})
}

func TestTranslationsFail(t *testing.T) {
	text := textFile(t, "2\n# none\n4\n5\n6\n")
	s, err := halves(false, 0).open(connector.Lines(text.Path))(0, 1)
	require.NoError(t, err)
	read := func() (got []int, err error) {
		for dst := make([]int, 10); err == nil; {
			var n int
			n, err = s.Read(dst)
			got = append(got, dst[:n]...)
		}
		return got, err
	}
	got, err := read()
	require.ErrorIs(t, err, errOdd)
	require.ErrorContains(t, err, "read numbers line 4: odd")
	require.Equal(t, []int{1, 2}, got, "what came before the bad line")
	require.NoError(t, s.Close())

	s, err = halves(true, 0).open(connector.Lines(text.Path))(0, 1)
	require.NoError(t, err)
	got, err = read()
	require.Equal(t, io.EOF, err)
	require.Equal(t, []int{1, 2, 3}, got)
	require.EqualValues(t, 1, s.(connector.Skipper).Skipped())
	require.Zero(t, s.(connector.Skipper).Ignored())
	require.NoError(t, s.Close())
}

// A translation hands over what is written over before it makes the next item, and only where it was told to.
func TestTranslationReuses(t *testing.T) {
	inner := halves(true, 0)
	var old []int
	inner.over = func(item int) { old = append(old, item) }
	s, err := inner.open(connector.Slice([]string{"2", "# none", "4", "6"}))(0, 1)
	require.NoError(t, err)
	dst := []int{7, 8, 9, 10}
	n, err := s.(stream.Reuser[int]).ReadOver(dst)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, dst[:n])
	require.Equal(t, []int{7, 8, 8, 9}, old, "a row without an item leaves it to the next one")
	_, err = s.Read(dst)
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, old, 4)
	require.NoError(t, s.Close())
}

func TestFlightsOfCSV(t *testing.T) {
	for line, want := range map[string]string{
		"1,2,3,A":                     "4 of 5 fields",
		"1,2,3,A,B,C":                 "6 of 5 fields",
		"x,2,3,A,B":                   "invalid syntax",
		"1,2.5,3,A,B":                 "invalid syntax",
		"1,2,,A,B":                    "invalid syntax",
		"9223372036854775808,2,3,A,B": "out of range",
	} {
		_, _, err := parseFlight(line)
		require.ErrorContains(t, err, want, line)
	}
	for _, line := range []string{"", "\r", logreg.FlightsHeader, "\ufeff" + logreg.FlightsHeader + "\r"} {
		_, ok, err := parseFlight(line)
		require.NoError(t, err)
		require.False(t, ok)
	}
	f, ok, err := parseFlight("-5,-2,300,ABE,ATL\r")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, logreg.Flight{Micros: -5, Delay: -2, Distance: 300, Origin: "ABE", Destination: "ATL"}, f)
}

// TestFlightsOfParquet compares with the same flights in CSV, also after going back.
func TestFlightsOfParquet(t *testing.T) {
	dir := t.TempDir()
	var rows []flightRow
	var text strings.Builder
	for i := range 1000 {
		r := flightRow{Date: int64(i), Delay: int16(i % 50), Distance: 7, Origin: "A", Destination: string(rune('A' + i%20))}
		rows = append(rows, r)
		fmt.Fprintf(&text, "%d,%d,7,A,%s\n", r.Date, r.Delay, r.Destination)
	}
	table, csv := filepath.Join(dir, "f.parquet"), filepath.Join(dir, "f.csv")
	require.NoError(t, parquet.WriteFile(table, rows))
	require.NoError(t, os.WriteFile(csv, []byte(text.String()), 0o600))
	same := func() (func(f *logreg.Flight) (logreg.Flight, error), func(logreg.Flight)) {
		return func(f *logreg.Flight) (logreg.Flight, error) { return *f, nil }, nil
	}
	read := func(s stream.Source[logreg.Flight]) (all []logreg.Flight) {
		for dst := make([]logreg.Flight, 77); ; {
			n, err := s.Read(dst)
			all = append(all, dst[:n]...)
			if err == io.EOF {
				return all
			}
			require.NoError(t, err)
		}
	}
	a, err := openFlights(table, false, 0, same)(0, 1)
	require.NoError(t, err)
	b, err := openFlights(csv, false, 0, same)(0, 1)
	require.NoError(t, err)
	want := read(b)
	require.Len(t, want, 1000)
	require.Equal(t, want, read(a))
	require.NoError(t, a.(stream.Replayable).Seek(stream.Position{Item: 500, Line: 500}))
	require.Equal(t, want[500:], read(a))
	done, total := a.(stream.Progresser).Progress()
	require.EqualValues(t, 1000, done)
	require.EqualValues(t, 1000, total)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())

	whole, err := os.ReadFile(table)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"cut": whole[:len(whole)-9], "empty": nil, "text": []byte(text.String())} {
		bad := filepath.Join(dir, name+".parquet")
		require.NoError(t, os.WriteFile(bad, content, 0o600))
		_, err := openFlights(bad, false, 0, same)(0, 1)
		require.ErrorContains(t, err, name+".parquet", "the file is named")
	}
	other := filepath.Join(dir, "other.parquet")
	require.NoError(t, parquet.WriteFile(other, []struct{ Date int64 }{{1}}))
	_, err = openFlights(other, false, 0, same)(0, 1)
	require.ErrorContains(t, err, `no column "date"`)
	_, err = openFlights(table, false, 0, same)(0, 2)
	require.ErrorContains(t, err, "one partition")
}
