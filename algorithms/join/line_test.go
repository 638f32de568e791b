package join

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestLine: against a slice that is sorted anew after each insertion; lists that lines give back never hold rows of others.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, lines, models := &spares{}, make([]line, 3), make([][]moment, 3)
		next := int32(0)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, 2).Draw(t, "line")
			l, m := &lines[i], &models[i]
			switch {
			case len(*m) == 0 && rapid.Bool().Draw(t, "release"):
				l.release(s)
			case len(*m) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == 0:
				k := rapid.IntRange(0, len(*m)-1).Draw(t, "which") / rapid.IntRange(1, 100).Draw(t, "mostly the first")
				l.remove((*m)[k].time, (*m)[k].slot)
				*m = slices.Delete(*m, k, k+1)
			default:
				next++
				row := moment{rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, 2, 3, math.MaxInt64}).Draw(t, "time"), next}
				l.insert(row.time, row.slot, s)
				*m = append(*m, row)
				slices.SortStableFunc(*m, func(a, b moment) int {
					if a.time < b.time {
						return -1
					}
					return int(min(1, uint64(a.time)-uint64(b.time)))
				})
			}
			for i := range lines {
				require.Equal(t, len(models[i]), lines[i].len())
				require.True(t, slices.Equal(models[i], lines[i].list[lines[i].first:]))
			}
			from, to := rapid.Int64Range(-2, 4).Draw(t, "from"), rapid.Int64Range(-2, 4).Draw(t, "to")
			start, end := l.between(from, to)
			for k, row := range l.list[l.first:] {
				inside := row.time >= from && row.time <= to
				require.Equal(t, inside, k+l.first >= start && k+l.first < end)
			}
		}
	})
}
