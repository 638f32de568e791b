package join

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/data"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/internal/thorough"
)

type flight struct {
	Minute              int64 // of departure
	Origin, Destination string
	Number              int
}

type airport struct{ Code string }

// jsonSide describes rows that are saved as JSON, as a user in no hurry would.
func jsonSide[T any](key func(*T) string, time func(*T) int64) Side[string, T] {
	return Side[string, T]{
		Key: key, Time: time,
		Append: func(dst []byte, row *T) ([]byte, error) {
			b, err := json.Marshal(row)
			return append(dst, b...), err
		},
		Decode: func(src []byte, row *T) error { return json.Unmarshal(src, row) },
	}
}

func flightsOf(t testing.TB) []flight {
	f, ok := data.Lookup("flights")
	require.True(t, ok)
	z, err := gzip.NewReader(strings.NewReader(f.Content))
	require.NoError(t, err)
	var flights []flight
	for s := bufio.NewScanner(z); s.Scan(); {
		c := strings.Split(s.Text(), ",")
		micros, err := strconv.ParseInt(c[0], 10, 64)
		if err != nil {
			continue // the header
		}
		flights = append(flights, flight{micros / 60e6, c[3], c[4], len(flights)})
	}
	require.Len(t, flights, 20_000)
	return flights
}

// airportsOf returns the fetched list of airports, or the airports that the flights name.
func airportsOf(t testing.TB, flights []flight) []airport {
	var list []airport
	for _, dir := range []string{"../../data/.data/", "../../.data/"} {
		b, err := os.ReadFile(dir + "airports.csv")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			code, _, _ := strings.Cut(line, ",")
			list = append(list, airport{code})
		}
		return list
	}
	seen := map[string]bool{}
	for _, f := range flights {
		for _, code := range []string{f.Origin, f.Destination} {
			if !seen[code] {
				seen[code] = true
				list = append(list, airport{code})
			}
		}
	}
	return list
}

// TestFlightsJoinAirports is a stream joined with a table: every flight finds its airport, and once the table is there
// nothing of the stream is kept.
func TestFlightsJoinAirports(t *testing.T) {
	flights := flightsOf(t)
	j := New(Options[string, flight, airport]{
		Left:  jsonSide(func(f *flight) string { return f.Destination }, func(f *flight) int64 { return f.Minute }),
		Right: jsonSide(func(a *airport) string { return a.Code }, nil),
		Kind:  LeftOuter, Once: true, MaxMatches: 1 << 20,
	})
	unmatched, pairs := 0, 0
	emit := func(p Pair[flight, airport]) {
		if pairs++; !p.Matched {
			unmatched++
		}
	}
	for i := range flights[:1000] { // before the table
		require.NoError(t, j.addLeft(&flights[i], emit))
	}
	for _, a := range airportsOf(t, flights) {
		require.NoError(t, j.addRight(&a, emit))
	}
	for i := range flights[1000:] {
		require.NoError(t, j.addLeft(&flights[1000+i], emit))
		left, _ := j.Rows()
		require.Zero(t, left)
		require.Less(t, len(j.left.queue)+len(j.left.heap), 3000)
	}
	require.Equal(t, 20_000, pairs)
	require.Zero(t, unmatched)
}

// connections is the join of arrivals with the departures from the same airport, at most half an hour apart, where a
// flight is taken to arrive two hours after its departure.
func connections() Options[string, flight, flight] {
	return Options[string, flight, flight]{
		Left:   jsonSide(func(f *flight) string { return f.Destination }, func(f *flight) int64 { return f.Minute + 120 }),
		Right:  jsonSide(func(f *flight) string { return f.Origin }, func(f *flight) int64 { return f.Minute }),
		Window: 30,
	}
}

// TestConnections joins arrivals with departures: complete without failures, and with ten of them short of no more pairs
// than the bound, which is measured, as is memory.
func TestConnections(t *testing.T) {
	const theta, failures = 50, 10
	flights := flightsOf(t)[:thorough.Number(4000, 20_000)]
	want := Exact(connections(), flights, flights)
	most := map[int]int{} // partners by row
	for _, p := range want {
		most[p.Left.Number]++
		most[-1-p.Right.Number]++
	}
	beta := 0
	for _, n := range most {
		beta = max(beta, n)
	}
	run := func(failures int) (c Completeness, kept, bytes int) {
		j := New(connections())
		s := statetest.NewStore(j)
		j.SetTheta(theta)
		var got []Pair[flight, flight]
		emit := func(p Pair[flight, flight]) { got = append(got, p) }
		for i := range flights {
			if j.StateDivergence()+2 > theta {
				s.Save(t, false)
				bytes += len(s.Durable()[len(s.Durable())-1])
			}
			require.NoError(t, j.addLeft(&flights[i], emit))
			require.NoError(t, j.addRight(&flights[i], emit))
			left, right := j.Rows()
			kept = max(kept, left+right)
			if failures > 0 && (i+1)%(len(flights)/(failures+1)) == 0 && i < len(flights)-failures {
				j = New(connections())
				s.Recover(t, j)
				j.SetTheta(theta)
			}
		}
		return Compare(got, want), kept, bytes
	}
	none, kept, _ := run(0)
	require.Zero(t, none.Missing+none.Extra)
	require.Less(t, kept, 4000, "of %d rows", 2*len(flights))
	some, _, bytes := run(failures)
	bound := MissingPairs(errorbound.Params{Theta: theta * failures}, float64(beta))
	t.Logf("%d pairs, beta %d, at most %d rows kept; with %d failures at theta=%d each: %+v, bound %v, %d bytes backed up",
		len(want), beta, kept, failures, theta, some, bound, bytes)
	require.Positive(t, some.Missing)
	require.Zero(t, some.Extra)
	require.LessOrEqual(t, float64(some.Missing), bound)
}
