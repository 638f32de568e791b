package logreg

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

func TestLearningDoesNotAllocate(t *testing.T) {
	examples := flights(t, 18)[:4096]
	for _, theta := range []float64{math.Inf(1), 1e6} {
		l := NewLearner(Options{Bits: 18, MaxFeatures: 10, Every: 1 << 30})
		l.SetTheta(theta)
		require.NoError(t, l.ProcessBatch(examples, nil))
		require.Zero(t, testing.AllocsPerRun(5, func() {
			if err := l.ProcessBatch(examples, nil); err != nil {
				t.Error(err)
			}
		}))
	}
}

// BenchmarkLearn learns from one flight an operation; backups are taken when they are asked for, which is never if theta
// is 10^6.
func BenchmarkLearn(b *testing.B) {
	examples := flights(b, 18)
	for _, theta := range []float64{math.Inf(1), 1e6, 10} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			l := NewLearner(Options{Bits: 18, MaxFeatures: 10, Every: 1 << 30})
			l.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			backups, written := 0, 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := l.learn(&examples[i%len(examples)], nil); err != nil {
					b.Fatal(err)
				}
				if i%16 == 0 && l.StateDivergence() > theta*3/4 { // the runtime asks once for each run of examples
					w.Reset(false)
					if err := l.BackupState(w); err != nil {
						b.Fatal(err)
					}
					l.BackupDurable()
					backups++
					written += len(w.Bytes())
				}
			}
			b.ReportMetric(float64(written)/float64(b.N), "backupB/op")
		})
	}
}

// BenchmarkByHand is what Learn is measured against: the same algorithm and counts in one loop.
func BenchmarkByHand(b *testing.B) {
	examples := flights(b, 18)
	const bias = 1 << 18
	type cell struct{ weight, squares float64 }
	cells := make([]cell, bias+1)
	q := &Prequential{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := &examples[i%len(examples)]
		z := cells[bias].weight
		for _, f := range e.Features {
			z += cells[f.Index].weight * float64(f.Value)
		}
		p := 1 / (1 + math.Exp(-z))
		q.Add(p, e.Positive)
		slope := p
		if e.Positive {
			slope--
		}
		for _, f := range e.Features {
			c := &cells[f.Index]
			g := slope * float64(f.Value)
			c.squares += g * g
			c.weight -= DefaultRate * g / math.Sqrt(c.squares)
		}
		c := &cells[bias]
		c.squares += slope * slope
		c.weight -= DefaultRate * slope / math.Sqrt(c.squares)
	}
	sink = cells[bias].weight
}

// sink keeps results alive.
var sink float64
