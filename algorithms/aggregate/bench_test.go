package aggregate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

func benchItems() []connector.Keyed {
	r := rand.New(rand.NewPCG(1, 0))
	zipf := rand.NewZipf(r, 1.1, 2, 10_000)
	items := make([]connector.Keyed, 1<<16)
	for i := range items {
		items[i] = connector.MakeKeyed(fmt.Appendf(nil, "key%d", zipf.Uint64()), r.Float64()*10)
	}
	return items
}

func keyedOptions(norm errorbound.Norm) Options[connector.Keyed] {
	return Options[connector.Keyed]{
		Key:     func(k *connector.Keyed) connector.Key { return k.Key },
		Hash:    func(k *connector.Keyed) uint64 { return k.Hash },
		Value:   func(k *connector.Keyed) float64 { return k.Weight },
		Measure: BySum, Norm: norm, Alpha: 10,
	}
}

func TestProcessBatchDoesNotAllocate(t *testing.T) {
	items := benchItems()[:4096]
	for _, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1} {
		a := New(keyedOptions(norm))
		a.SetTheta(1000)
		require.NoError(t, a.ProcessBatch(items, nil))
		require.Zero(t, testing.AllocsPerRun(20, func() {
			if err := a.ProcessBatch(items, nil); err != nil {
				t.Error(err)
			}
		}))
	}
}

// BenchmarkByHand is what the others are measured against. One operation is one item.
func BenchmarkByHand(b *testing.B) {
	items := benchItems()
	type group struct {
		count         int
		sum, min, max float64
	}
	groups := map[connector.Key]*group{}
	b.ResetTimer()
	for n := range b.N {
		item := &items[n&(1<<16-1)]
		g, ok := groups[item.Key]
		if !ok {
			g = &group{min: math.Inf(1), max: math.Inf(-1)}
			groups[item.Key] = g
		}
		g.count++
		g.sum += item.Weight
		g.min, g.max = min(g.min, item.Weight), max(g.max, item.Weight)
	}
}

// BenchmarkProcessBatch takes backups when they are asked for.
func BenchmarkProcessBatch(b *testing.B) {
	items := benchItems()
	for name, norm := range map[string]errorbound.Norm{"max": errorbound.Max, "l1": errorbound.L1} {
		for _, theta := range []float64{math.Inf(1), 10_000} {
			b.Run(fmt.Sprintf("%s/theta=%v", name, theta), func(b *testing.B) {
				a := New(keyedOptions(norm))
				a.SetTheta(theta)
				w := stream.NewStateWriter(nil, false)
				b.ResetTimer()
				for n := 0; n < b.N; n += 256 {
					at := n & (1<<16 - 1)
					if err := a.ProcessBatch(items[at:at+256], nil); err != nil {
						b.Fatal(err)
					}
					if a.StateDivergence() > theta*3/4 {
						w.Reset(false)
						if err := a.BackupState(w); err != nil {
							b.Fatal(err)
						}
						a.BackupDurable()
					}
				}
			})
		}
	}
}
