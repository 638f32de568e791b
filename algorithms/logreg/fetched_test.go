//go:build invariants

package logreg

import (
	"errors"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
)

// TestFlights is a known answer: the three million flights of 2001.
func TestFlights(t *testing.T) {
	f := fetched(t, "flights-3m.parquet")
	type row struct {
		Date        int64  `parquet:"date"`
		Delay       int16  `parquet:"delay"`
		Distance    int16  `parquet:"distance"`
		Origin      string `parquet:"origin"`
		Destination string `parquet:"destination"`
	}
	rows := parquet.NewGenericReader[row](f)
	defer rows.Close()
	l := NewLearner(Options{Bits: 18, MaxFeatures: 10, Every: 1 << 30})
	h := NewHasher(18)
	batch := make([]row, 4096)
	for {
		n, err := rows.Read(batch)
		for _, r := range batch[:n] {
			e := h.Flight(&Flight{r.Date, int(r.Delay), int(r.Distance), r.Origin, r.Destination})
			if err := l.learn(&e, nil); err != nil { // require is slow, three million times
				t.Fatal(err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	q := l.Quality().Quality()
	t.Logf("%+v", q)
	require.Equal(t, uint64(3_000_000), q.Examples)
	require.LessOrEqual(t, q.LogLoss, 0.430)
	require.GreaterOrEqual(t, q.AUC, 0.75)
}
