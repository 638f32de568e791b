//go:build e2e && linux

package soak

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// series is what was measured of one thing, in the order of time.
type series []float64

// quarters are the medians of the second quarter and of the last.
func (s series) quarters() (second, last float64) {
	n := len(s)
	return median(s[n/4 : n/2]), median(s[n-n/4:])
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// growth is how much more than in the second quarter something may be in the last: a share and a constant. Garbage collection,
// which jobs ran when, and how far a log is from its next clearing make that much.
type growth struct{ share, constant float64 }

var (
	memory = growth{0.30, 24 << 20} // bytes
	disk   = growth{0.30, 32 << 20} // bytes
	few    = growth{0.30, 16}       // threads, open files
	many   = growth{0.50, 100}      // goroutines

	anything = growth{0, math.Inf(1)} // of memory, for people to look at
)

// check says what is wrong with a series, if anything is.
func (g growth) check(s series) error {
	second, last := s.quarters()
	if most := second*(1+g.share) + g.constant; last > most {
		return fmt.Errorf("grows: median %.0f in the second quarter, %.0f in the last, more than %.0f", second, last, most)
	}
	return nil
}

func TestFlat(t *testing.T) {
	var flat, grows, falls, begins series
	for i := range 40 {
		flat = append(flat, 100+float64(i%3))
		grows = append(grows, 100+5*float64(i))
		falls = append(falls, 500-5*float64(i))
		begins = append(begins, min(float64(i)*10, 100))
	}
	g := growth{0.2, 10}
	require.NoError(t, g.check(flat))
	require.Error(t, g.check(grows))
	require.NoError(t, g.check(falls))
	require.NoError(t, g.check(begins))
	require.NoError(t, g.check(nil))
	second, last := grows.quarters()
	require.Equal(t, []float64{175, 275}, []float64{second, last}) // of 150 to 195, and 250 to 295
}
