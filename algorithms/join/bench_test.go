package join

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// tick is a row of the benchmarks: 24 bytes, keyed by a number.
type tick struct {
	key   uint64
	time  int64
	value float64
}

func tickOptions() Options[uint64, tick, tick] {
	s := Side[uint64, tick]{
		Key: func(t *tick) uint64 { return t.key }, Time: func(t *tick) int64 { return t.time },
		Append: func(dst []byte, t *tick) ([]byte, error) { return append(dst, make([]byte, 24)...), nil },
		Decode: func([]byte, *tick) error { return nil },
	}
	return Options[uint64, tick, tick]{Left: s, Right: s, Window: 5000}
}

// ticks are rows of many keys in the order of time; a window holds 5,000 of them.
func ticks() []tick {
	rows := make([]tick, 1<<16)
	for i := range rows {
		rows[i] = tick{key: uint64(i) * 0x9e3779b97f4a7c15 >> 50, value: 1}
	}
	return rows
}

func TestProcessDoesNotAllocate(t *testing.T) {
	for _, theta := range []float64{math.Inf(1), 1e6} {
		j, rows, now := New(tickOptions()), ticks(), int64(0)
		j.SetTheta(theta)
		sum := 0.0
		emit := func(p Pair[tick, tick]) { sum += p.Right.value }
		pass := func() {
			for i := range rows {
				rows[i].time = now
				now++
				add := j.addLeft
				if i&1 == 1 {
					add = j.addRight
				}
				if err := add(&rows[i], emit); err != nil {
					t.Error(err)
				}
			}
		}
		pass()
		require.Less(t, testing.AllocsPerRun(2, pass), 20.0, "for 65,536 rows") // now and then a Go map rebuilds itself
		require.Positive(t, sum)
	}
}

// BenchmarkJoin processes a row of either input in turn as one operation; backups are taken when they are asked for.
func BenchmarkJoin(b *testing.B) {
	for _, theta := range []float64{math.Inf(1), 1000} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			j, rows := New(tickOptions()), ticks()
			j.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			sum := 0.0
			emit := func(p Pair[tick, tick]) { sum += p.Left.value * p.Right.value }
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := &rows[i&(1<<16-1)]
				r.time = int64(i)
				var err error
				if i&1 == 0 {
					err = j.addLeft(r, emit)
				} else {
					err = j.addRight(r, emit)
				}
				if err == nil && j.StateDivergence() > theta*3/4 {
					w.Reset(false)
					err = j.BackupState(w)
					j.BackupDurable()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			sink = sum
		})
	}
}

// BenchmarkByHand is what Join is measured against: the same join in one loop, for rows in strict order of time only, so
// that a queue does for eviction.
func BenchmarkByHand(b *testing.B) {
	type kept struct {
		tick
		next int32
	}
	type input struct {
		heads map[uint64]int32
		rows  []kept
		free  []int32
		queue []int32
		first int
	}
	inputs := [2]*input{{heads: map[uint64]int32{}}, {heads: map[uint64]int32{}}}
	rows, sum := ticks(), 0.0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := rows[i&(1<<16-1)]
		r.time = int64(i)
		own, other := inputs[i&1], inputs[1-i&1]
		if at, ok := other.heads[r.key]; ok {
			for ; at >= 0; at = other.rows[at].next {
				if s := &other.rows[at]; r.time-s.time <= 5000 {
					sum += r.value * s.value
				}
			}
		}
		at := int32(len(own.rows))
		if n := len(own.free); n > 0 {
			at, own.free = own.free[n-1], own.free[:n-1]
		} else {
			own.rows = append(own.rows, kept{})
		}
		head, ok := own.heads[r.key]
		if !ok {
			head = -1
		}
		own.heads[r.key] = at
		own.rows[at] = kept{r, head}
		own.queue = append(own.queue, at)
		for other.first < len(other.queue) {
			old := other.queue[other.first]
			s := &other.rows[old]
			if r.time-s.time <= 5000 {
				break
			}
			other.first++
			if at := other.heads[s.key]; at == old {
				delete(other.heads, s.key)
			} else {
				for other.rows[at].next != old {
					at = other.rows[at].next
				}
				other.rows[at].next = -1
			}
			other.free = append(other.free, old)
		}
		if other.first > 1<<15 {
			other.queue = append(other.queue[:0], other.queue[other.first:]...)
			other.first = 0
		}
	}
	sink = sum
}

// sink keeps results alive.
var sink float64
