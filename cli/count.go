package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// count is the value of a flag for a number of things. Beside digits it takes what people write for large ones: 1e6,
// 20M, 10_000.
type count uint64

// Set implements cli.Generic.
func (n *count) Set(text string) error {
	digits, factor := text, 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if cut, ok := strings.CutSuffix(text, suffix); ok {
			digits, factor = cut, f
		}
	}
	plain := strings.ReplaceAll(digits, "_", "")
	if u, err := strconv.ParseUint(plain, 10, 64); err == nil && factor == 1 {
		*n = count(u)
		return nil
	}
	f, err := strconv.ParseFloat(plain, 64)
	f *= factor
	// Beyond 2^53 a float64 may not be the number that was written.
	if err != nil || !(f >= 0 && f <= 1<<53) || f != math.Trunc(f) {
		return fmt.Errorf("want a whole number of at least 0, such as 10000, 1e4, 10k or 20M")
	}
	*n = count(f)
	return nil
}

// String implements cli.Generic.
func (n *count) String() string { return strconv.FormatUint(uint64(*n), 10) }
