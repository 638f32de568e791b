package thorough

import "testing"

// TestTries: of n neighbours in any dimension of a grid one is tried, or all where the tests are thorough.
func TestTries(t *testing.T) {
	const n = 3
	want := Number(1, n)
	for a := range 4 {
		for b := range 5 {
			var along [3]int
			for c := range n {
				for dimension, place := range [][]int{{a, b, c}, {a, c, b}, {c, a, b}} {
					if Tries(n, place...) {
						along[dimension]++
					}
				}
			}
			for dimension, got := range along {
				if got != want {
					t.Errorf("dimension %d at %d, %d: %d of %d neighbours are tried, want %d", dimension, a, b, got, n, want)
				}
			}
		}
	}
}
