package reservoir

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

// improbable is the p-value below which a test fails. All seeds are fixed, so that the tests of this file either always
// pass or always fail: it is how unlikely a correct sampler was to be taken for a wrong one when the seeds were chosen.
const improbable = 1e-9

// chiSquared returns the p-value of counts where want was expected.
func chiSquared(got, want []float64) float64 {
	return survival(squares(got, want), float64(len(got)-1))
}

func squares(got, want []float64) (sum float64) {
	for i, x := range got {
		sum += (x - want[i]) * (x - want[i]) / want[i]
	}
	return sum
}

// survival returns the probability that chi-square with k degrees of freedom exceeds x, by the approximation of Wilson and
// Hilferty.
func survival(x, k float64) float64 {
	z := (math.Cbrt(x/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
	return math.Erfc(z/math.Sqrt2) / 2
}

// kolmogorov returns a bound of the p-value of numbers that are to be uniform between 0 and 1 (Massart, "The tight
// constant in the Dvoretzky-Kiefer-Wolfowitz inequality", 1990), which holds for any number of them.
func kolmogorov(numbers []float64) float64 {
	slices.Sort(numbers)
	n, d := float64(len(numbers)), 0.0
	for i, x := range numbers {
		f := min(max(x, 0), 1)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return min(1, 2*math.Exp(-2*n*d*d))
}

// draw returns the items of samples of runs seeds, each of one partition.
func draw(t *testing.T, o Options[number], n, runs int) [][]number {
	samples := make([][]number, runs)
	for seed := range samples {
		o.Seed = uint64(seed)
		s := NewSample(o)
		require.NoError(t, s.Open(context.Background(), stream.Placement{Partition: seed % 3}))
		require.NoError(t, s.ProcessBatch(upTo(n), nil))
		samples[seed] = items(entries(t, s))
	}
	return samples
}

// tally counts how often each of n numbers is in the samples.
func tally(samples [][]number, n int) []float64 {
	counts := make([]float64, n)
	for _, sample := range samples {
		for _, x := range sample {
			counts[x]++
		}
	}
	return counts
}

func expected(n int, each func(i int) float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = each(i)
	}
	return list
}

// TestUniform: over many seeds every item is drawn equally often, and so are pairs of neighbours.
func TestUniform(t *testing.T) {
	const n, size, runs = 50, 5, 20_000
	samples := draw(t, Options[number]{Size: size}, n, runs)
	drawn, pairs := tally(samples, n), make([]float64, n/2)
	// Items of one sample exclude each other: the deviations are smaller by the share that is not drawn, n/(n-1) times.
	for i, x := range drawn {
		drawn[i] = runs*size/n + (x-runs*size/n)/math.Sqrt((1-float64(size)/n)*n/(n-1))
	}
	require.Greater(t, chiSquared(drawn, expected(n, func(int) float64 { return runs * size / n })), improbable)
	for _, sample := range samples {
		for _, x := range sample {
			if x%2 == 0 && slices.Contains(sample, x+1) {
				pairs[x/2]++
			}
		}
	}
	// Disjoint pairs are all but independent, and rare: Poisson. Their sum is not given, which costs a degree of freedom.
	together := float64(runs*size*(size-1)) / (n * (n - 1))
	chi := squares(pairs, expected(n/2, func(int) float64 { return together }))
	require.Greater(t, survival(chi, n/2), improbable)
}

// TestPriorities: those of all items are uniform, and with weights exponential with the weight as rate, whatever the
// seed, the partition and the way the numbers of items are counted up.
func TestPriorities(t *testing.T) {
	const n = 20_000
	byID := func(x *number) uint64 { return uint64(*x) * 1000 }
	for name, o := range map[string]Options[number]{
		"plain": {}, "by ID": {ID: byID}, "weighted": {Weight: weighted}, "weighted by ID": {Weight: weighted, ID: byID},
	} {
		for seed := range uint64(3) {
			o.Size, o.Seed = n, seed
			s := NewSample(o)
			require.NoError(t, s.Open(context.Background(), stream.Placement{Partition: int(seed)}))
			require.NoError(t, s.ProcessBatch(upTo(n), nil))
			var uniform, steps []float64
			inOrder := make([]float64, n)
			for _, e := range entries(t, s) {
				u := e.Priority
				if o.Weight != nil {
					u = 1 - math.Exp(-weighted(&e.Item)*u)
				}
				uniform, inOrder[e.Item] = append(uniform, u), u
			}
			for i := range n - 1 { // of neighbours: uniform on a circle if they are independent
				_, step := math.Modf(1 + inOrder[i+1] - inOrder[i])
				steps = append(steps, step)
			}
			require.Greater(t, kolmogorov(uniform), improbable, "%s, seed %d", name, seed)
			require.Greater(t, kolmogorov(steps), improbable, "%s, seed %d: neighbours", name, seed)
		}
	}
}

// TestWeighted: a sample of one item has each in proportion to its weight, one of two as if drawn one after another. The
// deviations of two are smaller, since items exclude each other, so the test is on the safe side there.
func TestWeighted(t *testing.T) {
	const n, runs = 8, 40_000
	total := float64(n * (n + 1) / 2)
	for _, size := range []int{1, 2} {
		want := expected(n, func(i int) float64 {
			w := float64(i + 1)
			p := w / total
			for j := range n { // j was the first, i is the second
				if size == 2 && j != i {
					p += float64(j+1) / total * w / (total - float64(j+1))
				}
			}
			return p * runs
		})
		drawn := tally(draw(t, Options[number]{Size: size, Weight: weighted}, n, runs), n)
		require.Greater(t, chiSquared(drawn, want), improbable, "samples of %d", size)
	}
}
