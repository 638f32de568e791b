package spacesaving

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
)

func someEstimates() Estimates {
	return Estimates{absent: 2, total: 50, keys: map[connector.Key]float64{
		connector.MakeKey([]byte("a")): 40, connector.MakeKey([]byte("b")): 9.5, connector.MakeKey(nil): 2,
	}}
}

func TestEstimatesAsBytes(t *testing.T) {
	for _, e := range []Estimates{someEstimates(), {keys: map[connector.Key]float64{}}} {
		b, err := e.AppendBinary([]byte("before"))
		require.NoError(t, err)
		var again Estimates
		require.NoError(t, again.UnmarshalBinary(b[6:]))
		require.Equal(t, e, again)
		require.ErrorIs(t, again.UnmarshalBinary(append(b[6:], 1)), ErrPartial)
		require.Equal(t, e, again, "an error leaves it as it was")
	}
}

func FuzzEstimates(f *testing.F) {
	b, _ := someEstimates().AppendBinary(nil)
	f.Add(b)
	f.Add(b[:17])
	f.Fuzz(func(t *testing.T, b []byte) {
		var e, again Estimates
		if e.UnmarshalBinary(b) != nil {
			return
		}
		b, err := e.AppendBinary(nil)
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalBinary(b))
		require.Equal(t, e, again)
	})
}
