package experiments

import (
	"fmt"
	"math"
)

// Plot is a diagram of lines, or of bars where the horizontal axis has names.
type Plot struct {
	Name  string // of its file, beside that of the experiment, [a-z0-9-]{1,64}
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is one axis of a Plot.
type Axis struct {
	Label string
	// Log makes it logarithmic; values that are not positive are then left out.
	Log bool
	// Fit lets a linear axis begin where the values do instead of at zero. It is not for bars.
	Fit bool
	// Names, of the horizontal axis, replace numbers: the value i stands for Names[i], and each Line becomes one bar per
	// name.
	Names []string
}

// Line is one series of a Plot. Points that are not finite are left out.
type Line struct {
	Name   string
	X, Y   []float64
	Dashed bool // for bounds, beside what keeps them
}

// scaling maps values of an axis to positions on paper.
type scaling struct {
	log        bool
	low, high  float64 // of values, or of their logarithms
	from, to   float64 // positions of low and high
	ticks      []float64
	tickFormat func(float64) string
}

func (s *scaling) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// largest bounds what can be drawn, and 1/largest what is told from zero: beyond it the arithmetic of axes overflows.
const largest = 1e300

// shows says whether a value can be drawn at all.
func (s *scaling) shows(v float64) bool {
	return math.Abs(v) <= largest && (!s.log || v >= 1/largest)
}

// newScaling fits an axis to values, with ticks that people like.
func newScaling(values []float64, a Axis, from, to float64) scaling {
	s := scaling{log: a.Log, from: from, to: to, tickFormat: tickText}
	low, high, any := 0.0, 1.0, false
	for _, v := range values {
		if !s.shows(v) {
			continue
		}
		if !any {
			low, high, any = v, v, true
		}
		low, high = min(low, v), max(high, v)
	}
	switch {
	case a.Log:
		s.fitLog(low, high, any)
	case a.Fit:
		s.fitLinear(low, high)
	default:
		s.fitLinear(min(low, 0), max(high, 0))
	}
	return s
}

func (s *scaling) fitLog(low, high float64, any bool) {
	if !any {
		low, high = 1, 10
	}
	s.low, s.high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if s.low == s.high {
		s.high++
	}
	step := math.Ceil((s.high - s.low) / 8)
	for e := s.low; e <= s.high; e += step {
		s.ticks = append(s.ticks, math.Pow(10, e))
	}
}

func (s *scaling) fitLinear(low, high float64) {
	if !(high-low > 1e-9*math.Abs(high)) || high-low < 1/largest {
		low, high = min(low, 0), max(high, 0, low+1) // too little to tell apart: from zero, or to 1
	}
	step := niceStep((high - low) / 6)
	first, last := math.Floor(low/step), math.Ceil(high/step)
	s.low, s.high = first*step, last*step
	for i := first; i <= last; i++ {
		s.ticks = append(s.ticks, i*step)
	}
}

// niceStep returns the smallest of 1, 2, 5, 10 times a power of ten that is at least rough.
func niceStep(rough float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= rough*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// tickText returns a number as short as it can be: 20, 0.5, 5k, 20M, 1e+12.
func tickText(f float64) string {
	abs := math.Abs(f)
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if abs >= unit.size && abs < 1000*unit.size {
			return fmt.Sprintf("%.4g%s", f/unit.size, unit.name)
		}
	}
	if abs < 1e-12 { // what rounding leaves of zero
		return "0"
	}
	return fmt.Sprintf("%.4g", f)
}
