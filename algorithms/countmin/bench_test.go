package countmin

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/afstream/afstream/stream"
)

// zipfHashes are the hashes of a long-tailed stream, ready-made so that only the sketch is measured.
func zipfHashes() []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.1, 1, 1<<20)
	hashes := make([]uint64, 1<<16)
	for i := range hashes {
		hashes[i] = hashOf(0, zipf.Uint64())
	}
	return hashes
}

// backUp is what the runtime does between two runs of items.
func backUp(b *testing.B, s *Sketch, w *stream.StateWriter, theta float64) {
	if s.StateDivergence() <= theta*3/4 {
		return
	}
	w.Reset(false)
	if err := s.BackupState(w); err != nil {
		b.Fatal(err)
	}
	s.BackupDurable()
}

func BenchmarkUpdate(b *testing.B) {
	hashes := zipfHashes()
	for _, theta := range []float64{math.Inf(1), 2500} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			s, err := New(Params{Rows: 4, Width: 8000, Alpha: 1, TotalSlack: 100})
			if err != nil {
				b.Fatal(err)
			}
			s.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			b.ReportAllocs()
			sum := 0.0
			for i := 0; b.Loop(); i++ {
				sum += s.Update(hashes[i&(1<<16-1)], 1)
				if i&255 == 0 {
					backUp(b, s, w, theta)
				}
			}
			sink = sum
		})
	}
}

// BenchmarkByHand is what Update is measured against: the same work in one loop, with nothing but a limit per cell.
func BenchmarkByHand(b *testing.B) {
	type cell struct{ value, limit float64 }
	hashes := zipfHashes()
	cells := make([]cell, 4*8000)
	for i := range cells {
		cells[i].limit = 2500
	}
	factors := rowFactors(4)
	f0, f1, f2, f3 := factors[0], factors[1], factors[2], factors[3]
	total, sum, reached := 0.0, 0.0, 0
	bump := func(at uint64) float64 {
		c := &cells[at]
		c.value++
		if c.value >= c.limit {
			reached++
			c.limit += 2500
		}
		return c.value
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h := hashes[i&(1<<16-1)]
		total++
		v0 := bump(h * f0 >> 32 * 8000 >> 32)
		v1 := bump(8000 + h*f1>>32*8000>>32)
		v2 := bump(16000 + h*f2>>32*8000>>32)
		v3 := bump(24000 + h*f3>>32*8000>>32)
		sum += min(v0, v1, v2, v3)
	}
	sink = sum + total + float64(reached)
}

// sink keeps results alive.
var sink float64
