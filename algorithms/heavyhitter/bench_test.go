package heavyhitter

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

func benchItems() []connector.Keyed {
	items := zipfItems(1, 1<<16)
	for i := range items {
		items[i].Weight = 1
	}
	return items
}

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	items := benchItems()[:4096]
	s := NewSketch(Options{Rows: 4, Width: 8000, Threshold: 0.01, Alpha: 1})
	s.SetTheta(math.Inf(1))
	require.NoError(t, s.ProcessBatch(items, nil))
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if err := s.ProcessBatch(items, nil); err != nil {
			t.Error(err)
		}
	}))
}

// BenchmarkProcessBatch counts one item as one operation; backups are taken when they are asked for.
func BenchmarkProcessBatch(b *testing.B) {
	items := benchItems()
	for _, theta := range []float64{math.Inf(1), 2500} {
		b.Run(fmt.Sprint("theta=", theta), func(b *testing.B) {
			s := NewSketch(Options{Rows: 4, Width: 8000, Threshold: 0.01, Alpha: 1})
			s.SetTheta(theta)
			w := stream.NewStateWriter(nil, false)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 256 {
				at := n & (1<<16 - 1)
				if err := s.ProcessBatch(items[at:at+256], nil); err != nil {
					b.Fatal(err)
				}
				if s.StateDivergence() > theta*3/4 {
					w.Reset(false)
					if err := s.BackupState(w); err != nil {
						b.Fatal(err)
					}
					s.BackupDurable()
				}
			}
		})
	}
}
