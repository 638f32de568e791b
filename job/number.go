package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Number is a figure of a report. JSON knows neither infinity nor NaN: both are null there.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	if f == math.Trunc(f) && math.Abs(f) < 1e15 { // counts as counts, not as 1e+06
		return strconv.AppendFloat(nil, f, 'f', -1, 64), nil
	}
	return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
}

// String returns n for people: in groups of three digits, with at most three decimals.
func (n Number) String() string {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return "unknown"
	case math.IsInf(f, 0):
		return "infinite"
	case math.Abs(f) >= 1e15:
		return strconv.FormatFloat(f, 'g', 4, 64)
	case f != 0 && math.Abs(f) < 1e-3:
		return strconv.FormatFloat(f, 'g', 2, 64)
	}
	text := strconv.FormatFloat(math.Abs(f), 'f', 3, 64)
	whole, decimals, _ := strings.Cut(text, ".")
	if decimals = strings.TrimRight(decimals, "0"); decimals != "" {
		decimals = "." + decimals
	}
	sign := ""
	if f < 0 {
		sign = "-"
	}
	return sign + groupDigits(whole) + decimals
}

// group returns a count in groups of three digits.
func group(n uint64) string { return groupDigits(strconv.FormatUint(n, 10)) }

func groupDigits(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// scaled returns a rate or size with an SI prefix: "12.3 M", or "123 " where there is none.
func scaled(f float64) string {
	for _, unit := range []struct {
		size   float64
		prefix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if f >= unit.size {
			return fmt.Sprintf("%.3g %s", f/unit.size, unit.prefix)
		}
	}
	return fmt.Sprintf("%.3g ", f)
}

// seconds returns a duration in the unit that suits it.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 100:
		return fmt.Sprintf("%.2f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + many
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
