package logreg

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func somePredictions() *Prequential {
	q := &Prequential{}
	for i := range 1000 {
		q.Add(float64(i%101)/100, i%3 == 0)
	}
	return q
}

func TestPrequentialAsBytes(t *testing.T) {
	for _, q := range []*Prequential{somePredictions(), {}} {
		b, err := q.AppendBinary(nil)
		require.NoError(t, err)
		var again Prequential
		require.NoError(t, again.UnmarshalBinary(b))
		require.Equal(t, q.Quality(), again.Quality())
		for _, wrong := range [][]byte{nil, b[:9], b[:len(b)-1], append(b, 0)} {
			require.Error(t, again.UnmarshalBinary(wrong))
		}
		require.Equal(t, q.Quality(), again.Quality(), "an error leaves it as it was")
	}
}

func FuzzPrequential(f *testing.F) {
	b, _ := somePredictions().AppendBinary(nil)
	f.Add(b)
	f.Add(b[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		var q, again Prequential
		if q.UnmarshalBinary(b) != nil {
			return
		}
		b, err := q.AppendBinary(nil)
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalBinary(b))
		require.Equal(t, q.Quality(), again.Quality())
	})
}
