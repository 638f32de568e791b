package stream

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// choose returns the partition that a partitioning option sends item to.
func choose[T any](o Option, item T, n int) int {
	s := &settings{}
	o(s)
	return s.pick.(Partitioner[T])(item, n)
}

// Keys that go up in equal steps, which is what counters, addresses and time stamps do, must load all partitions
// alike, whatever the step has in common with their number. The chance of a false alarm is 10^-6 per case, and the
// functions are fixed, so that a test that passes once passes always.
func TestHashSpreadsCorrelatedKeys(t *testing.T) {
	const keys = 5_000
	for n := 1; n <= 16; n++ {
		for _, step := range []uint64{1, 2, uint64(n), 16 * uint64(n), 1 << 16, 1 << 32, 1 << 40} {
			numbers, words := make([]int, n), make([]int, n)
			for i := range uint64(keys) {
				numbers[choose(HashUint64(identity), i*step, n)]++
				words[choose(Hash(func(x uint64) string { return fmt.Sprint(x) }), i*step, n)]++
			}
			requireUniform(t, numbers, keys, "HashUint64 n=%d step=%d", n, step)
			requireUniform(t, words, keys, "Hash n=%d step=%d", n, step)
		}
	}
}

func requireUniform(t *testing.T, counts []int, total float64, format string, args ...any) {
	t.Helper()
	if len(counts) == 1 {
		return
	}
	want, chi2 := total/float64(len(counts)), 0.0
	for _, c := range counts {
		chi2 += (float64(c) - want) * (float64(c) - want) / want
	}
	require.Less(t, chi2, chiSquared(float64(len(counts)-1)), "%s: %v", fmt.Sprintf(format, args...), counts)
}

// chiSquared returns what chi-square with k degrees of freedom exceeds with probability 10^-6, by the approximation of
// Wilson and Hilferty.
func chiSquared(k float64) float64 {
	const z = 4.753
	return k * math.Pow(1-2/(9*k)+z*math.Sqrt(2/(9*k)), 3)
}

// Backups rely on the choice: these values must never change.
func TestHashIsStable(t *testing.T) {
	word := Hash(func(s string) string { return s })
	number := HashUint64(identity)
	for key, want := range map[string][3]int{"": {1, 6, 934}, "a": {1, 5, 821}, "afstream": {0, 1, 149}, "\u00fc": {0, 0, 7}} {
		for i, n := range []int{2, 7, 1000} {
			require.Equal(t, want[i], choose(word, key, n), "%q of %d", key, n)
		}
	}
	for key, want := range map[uint64][3]int{0: {0, 0, 0}, 1: {0, 2, 338}, 1 << 63: {0, 1, 147}, 12345: {1, 6, 950}} {
		for i, n := range []int{2, 7, 1000} {
			require.Equal(t, want[i], choose(number, key, n), "%d of %d", key, n)
		}
	}
}

func TestHashStaysInRange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 1<<31-1).Draw(rt, "n")
		for _, to := range []int{
			choose(HashUint64(identity), rapid.Uint64().Draw(rt, "number"), n),
			choose(Hash(func(s string) string { return s }), rapid.String().Draw(rt, "word"), n),
			reduce(^uint64(0), n),
		} {
			require.GreaterOrEqual(rt, to, 0)
			require.Less(rt, to, n)
		}
	})
}
