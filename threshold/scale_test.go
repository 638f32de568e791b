package threshold_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// When the number of workers changes, what was spent stays spent: all workers begin with as many failures as the one had
// that had most.
//
// Let K be that number, N the partitions before and M those after. The j-th failures of all workers together (j from 0) cost at most
// Theta*a_j, since Share makes N partitions that are each off by theta be off by Theta*a_j together, in every norm and
// whether states are added up or disjoint. Before the change only failures with j < K were, after it only ones with j >= K
// are: together at most Theta * sum a_j <= Theta, by the triangle inequality. It does not matter how errors of the past are
// divided among the new partitions: neither the sum of states nor their union changes when elements are moved. Items
// count alike whoever loses them, so L and Gamma follow from N*floor(L*a_j/N) <= L*a_j.
func TestChangesOfPartitionsKeepTheBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := errorbound.Params{
			Theta: 1e6, L: rapid.Uint64Range(0, 1e6).Draw(rt, "l"), Gamma: rapid.Uint64Range(0, 1e6).Draw(rt, "gamma"),
			Series: rapid.SampledFrom(series).Draw(rt, "series"),
		}
		norm := rapid.SampledFrom([]errorbound.Norm{errorbound.Max, errorbound.L1, errorbound.L2, errorbound.Count}).Draw(rt, "norm")
		combine := rapid.SampledFrom([]errorbound.Combine{errorbound.Added, errorbound.Disjoint}).Draw(rt, "combine")
		var theta float64
		var l, gamma uint64
		base := uint64(0)
		for range rapid.IntRange(1, 6).Draw(rt, "layouts") {
			workers, compute := rapid.IntRange(1, 5).Draw(rt, "workers"), rapid.IntRange(1, 3).Draw(rt, "compute")
			failures := rapid.SliceOfN(rapid.Uint64Range(0, 6), workers, workers).Draw(rt, "failures")
			most := uint64(0)
			for _, f := range failures {
				most = max(most, f)
			}
			for j := range most {
				b := threshold.Split(threshold.Config{
					Params: p, Norm: norm, Combine: combine, Partitions: workers * compute, Failures: base + j,
				})
				failed := 0 // partitions whose worker has failed so often
				for _, f := range failures {
					if f > j {
						failed += compute
					}
				}
				theta += together(norm, combine, failed, b.Theta)
				l += uint64(failed) * b.L
				gamma += uint64(failed) * b.Gamma
			}
			base += most
		}
		require.LessOrEqual(rt, theta, p.Theta*(1+1e-9))
		require.LessOrEqual(rt, l, p.L)
		require.LessOrEqual(rt, gamma, p.Gamma)
	})
}

// together is by how much the state of an operator can be off if n of its partitions are, each by theta.
func together(norm errorbound.Norm, combine errorbound.Combine, n int, theta float64) float64 {
	switch {
	case n == 0:
		return 0
	case combine == errorbound.Disjoint && norm == errorbound.Max:
		return theta
	case combine == errorbound.Disjoint && norm == errorbound.L2:
		return theta * math.Sqrt(float64(n))
	}
	return theta * float64(n)
}
