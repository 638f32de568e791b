package distinct

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/axiomhq/hyperloglog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
)

// oracle is an independent HyperLogLog. It takes the same bits of a hash for register and zeros, and estimates by another
// method (LogLog-Beta).
type oracle struct{ *hyperloglog.Sketch }

func newOracle(t require.TestingT, precision int) oracle {
	s, err := hyperloglog.NewSketch(uint8(precision), false)
	require.NoError(t, err)
	return oracle{s}
}

// registers returns its registers, which its binary form has after 8 bytes.
func (o oracle) registers(t require.TestingT) []uint8 {
	wire, err := o.MarshalBinary()
	require.NoError(t, err)
	return wire[8:]
}

// TestRegistersOfTheOracle: of any hashes, in any parts that are then merged, both hold the same registers.
func TestRegistersOfTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(MinPrecision, 10).Draw(t, "precision")
		m, all := NewMerge(p), newOracle(t, p)
		for range 3 {
			part, other := New(p), newOracle(t, p)
			for range rapid.IntRange(0, 40).Draw(t, "keys") {
				// Uniform hashes have few zeros: these have up to all.
				at, rest := rapid.Uint64().Draw(t, "register"), rapid.Uint64().Draw(t, "rest")
				h := at<<(64-p) | rest>>p>>rapid.IntRange(0, 63).Draw(t, "zeros")
				add(t, part, h)
				other.InsertHash(h)
			}
			require.Equal(t, other.registers(t), part.Sketch().registers)
			require.NoError(t, m.Process(part.Sketch(), nil))
			require.NoError(t, all.Merge(other.Sketch))
		}
		require.Equal(t, all.registers(t), m.all.registers)
	})
}

// TestEstimatesOfTheOracle: of the same keys both estimates are near the truth, and nearer to each other than to it,
// since the registers are the same. The keys are fixed, so nothing here is left to chance.
func TestEstimatesOfTheOracle(t *testing.T) {
	for _, p := range []int{8, 12, 14, 18} {
		c, o, n := New(p), newOracle(t, p), 0
		for _, upTo := range []int{10, 100, 1000, 10_000, 200_000} {
			for ; n < upTo; n++ {
				item := connector.MakeKeyed(fmt.Append(nil, "key", n), 1)
				add(t, c, item.Hash)
				o.InsertHash(item.Hash)
			}
			ours, theirs, most := c.Sketch().Estimate(), float64(o.Estimate()), 4*StandardError(p)*float64(n)+1
			require.InDelta(t, n, ours, most, "precision %d", p)
			require.InDelta(t, n, theirs, most, "precision %d", p)
			require.LessOrEqual(t, math.Abs(ours-theirs), most/4, "precision %d, %d keys", p, n)
		}
	}
}

// TestMergeLaws: sketches are merged as the sets of keys that they stand for.
func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hashes := rapid.SliceOfN(rapid.Uint64(), 0, 60)
		of := func(lists ...[]uint64) Sketch {
			c := New(5)
			add(t, c, slices.Concat(lists...)...)
			return c.Sketch()
		}
		merge := func(parts ...Sketch) Sketch {
			m := NewMerge(5)
			for _, part := range parts {
				require.NoError(t, m.Process(part, nil))
			}
			return m.all
		}
		a, b, c := hashes.Draw(t, "a"), hashes.Draw(t, "b"), hashes.Draw(t, "c")
		statetest.MergeLaws(t, merge, of(a, b, c), of(a), of(b), of(c))
		require.Equal(t, of(a), merge(of(a), of(a)), "idempotent")
	})
}
