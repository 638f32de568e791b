//go:build invariants

package experiments

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummaries(t *testing.T) {
	outcomes, err := Run(t.Context(), []Experiment{fake(always, 30)}, options(t.TempDir()))
	require.NoError(t, err)
	r := outcomes[0].Results
	ten := r.Where("theta", "10")
	require.Equal(t, 2000.0, ten.Value("rate"), "the median of 1000, 2000, 3000")
	require.Equal(t, []float64{1000, 0.5}, ten.Summaries[0].Low)
	require.Equal(t, []float64{3000, 0.5}, ten.Summaries[0].High)
	require.Equal(t, 10.0, ten.Value("ratio"), "of rates with the same seed")
	require.Equal(t, 30.0, ten.Value("divergence"), "the worst")
	require.Equal(t, 30.0, ten.Value("divergence_bound"))
	require.Equal(t, 10.0, ten.Value("theta"))
	unbounded := r.Where("theta", "+Inf")
	require.Equal(t, 0.5, unbounded.Value("ratio"), "the median of 1, 1/2, 1/3")
	require.True(t, math.IsNaN(unbounded.Value("recall")))
	require.True(t, math.IsNaN(r.Value("rate")), "there are several")
	require.Equal(t, Line{Name: "x", X: []float64{1, 10}, Y: []float64{3, 30}}, r.Where("theta", "1", "10").Line("x", "theta", "divergence"))
	require.Panics(t, func() { r.Where("nothing", "1") })
	require.Panics(t, func() { r.Value("nothing") })
}

func TestWorstError(t *testing.T) {
	inf := math.Inf(1)
	ordered := []Measured{{0, 0}, {5, inf}, {1, 10}, {9, 10}, {1, 1}, {2, 1}, {3, 0}}
	for i := range ordered[1:] {
		require.Negative(t, compareErrors(ordered[i], ordered[i+1]), "%v before %v", ordered[i], ordered[i+1])
	}
	require.Positive(t, compareErrors(Measured{math.NaN(), 1}, Measured{1, 1}))
}

func TestMedian(t *testing.T) {
	require.True(t, math.IsNaN(median(nil)))
	require.Equal(t, 3.0, median([]float64{3}))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
	require.Equal(t, 3.0, median([]float64{9, 1, 3}))
}

func TestFigure(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", 99999: "99999", 100000: "100 k", 0.98765: "0.988", 1234.5: "1.23 k", 2.5e6: "2.5 M", 3e9: "3 G", 1e15: "1e+15",
		1e-7: "1e-07", -2.5e6: "-2.5 M", math.Inf(1): "none",
	} {
		require.Equal(t, want, figure(f))
	}
	require.Equal(t, "-", figure(math.NaN()))
}

// FuzzParse reads files that others may have written.
func FuzzParse(f *testing.F) {
	e := fake(always, 30)
	header := "scale,seed,cores,go,os,arch,theta,rate,recall,divergence,divergence_bound,within_bound\n"
	f.Add(header + "small,1,2,go1.26,plan9,mips,1,100,0.5,1,30,true\n")
	f.Add(header + "small,1,2,go1.26,\"plan,9\",mips,+Inf,NaN,-0,1e309,30,\n")
	f.Add("\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := e.parse([]byte(text))
		if err != nil {
			return
		}
		for _, r := range rows {
			again, err := e.parseRow(r.cells())
			require.NoError(t, err)
			require.Equal(t, r.cells(), again.cells())
		}
	})
}
