package wordcount

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHash: words that differ have different hashes, and tables of them are as full in all parts. All that is hashed is
// fixed, so the test passes always or never.
func TestHash(t *testing.T) {
	seen, low, high := map[uint64]string{}, [64]int{}, [64]int{}
	words := 0
	add := func(word string) {
		h := keyOf([]byte(word)).hash(len(word))
		other, again := seen[h]
		if again {
			t.Fatalf("%q and %q", word, other)
		}
		seen[h] = word
		low[h&63]++
		high[h>>58]++
		words++
	}
	for a := range 64 {
		add(string(rune('0' + a)))
		for b := range 64 {
			add(string([]byte{byte('0' + a), byte('0' + b)}))
			for c := range 64 {
				add(string([]byte{byte('0' + a), byte('0' + b), byte('0' + c)}))
			}
		}
	}
	for n := 4; n < 20; n++ {
		for i := range 5000 {
			add(fmt.Sprintf("%0*d", n, i))
		}
	}
	for i := range low {
		require.InEpsilon(t, float64(words)/64, low[i], 0.1)
		require.InEpsilon(t, float64(words)/64, high[i], 0.1)
	}
}
