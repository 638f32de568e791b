package threshold_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// The simulation runs the protocol of this package's machines, with sources, channels, stores and failures around
// them, in one goroutine: a seeded scheduler picks the next enabled action. Every run is compared with what a
// failure-free run of the same input gives, item by item.
var (
	simRuns = flag.Int("sim.runs", 0, "seeded runs of the protocol simulation; 0: 1500, or 500 under the race detector, which "+
		"has nothing to find in one goroutine")
	simSeed = flag.Uint64("sim.seed", 0, "replay the one run of this seed")
)

func runs() uint64 {
	switch {
	case *simRuns > 0:
		return uint64(*simRuns)
	case raceDetector:
		return 500
	}
	return 1500
}

func TestProtocolSimulationKeepsItsBounds(t *testing.T) {
	if *simSeed != 0 {
		_, err := run(*simSeed, faithful)
		require.NoError(t, err)
		return
	}
	var sum tally
	for seed := uint64(1); seed <= runs(); seed++ {
		got, err := run(seed, faithful)
		require.NoError(t, err, "replay with -sim.seed=%d", seed)
		sum.add(got)
	}
	t.Logf("%d runs: %+v", runs(), sum)
	require.Positive(t, sum.crashes)
	if runs() < 5000 {
		return
	}
	// Runs that stay far from the bounds would prove nothing.
	for name, w := range map[string]worst{"missing": sum.missing, "lost": sum.lost, "repeated": sum.repeated,
		"unemitted": sum.unemitted} {
		require.Greater(t, w.ofBound, 0.3, "%s: the runs are too tame", name)
	}
}

// A test of the test: each fault in the protocol must be found within some seeds.
func TestProtocolSimulationFindsEveryFault(t *testing.T) {
	const within = 5000
	for m := faithful + 1; m < mutations; m++ {
		t.Run(m.String(), func(t *testing.T) {
			for seed := uint64(1); seed <= within; seed++ {
				if _, err := run(seed, m); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Errorf("not found within %d seeds", within)
		})
	}
}
