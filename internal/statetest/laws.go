package statetest

import "github.com/stretchr/testify/require"

// MergeLaws checks that merging, the way merge does it, is commutative and associative, that merging nothing and merging
// what has seen nothing changes nothing, and that the merged parts are the whole: all exactly, as require.Equal sees it.
// merge must not change its arguments; whole is the state of all that the parts have seen. Where a law holds only within
// a bound, a test of its own must say so.
func MergeLaws[S any](t require.TestingT, merge func(parts ...S) S, whole, a, b, c S) {
	require.Equal(t, whole, merge(a, b, c), "the parts are the whole")
	for _, other := range [][]S{{a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		require.Equal(t, whole, merge(other...), "commutative")
	}
	require.Equal(t, whole, merge(merge(a, b), c), "associative")
	require.Equal(t, whole, merge(a, merge(b, c)), "associative")
	for _, part := range []S{a, b, c} {
		require.Equal(t, part, merge(part), "one part")
		require.Equal(t, part, merge(merge(), part, merge()), "identity")
	}
}
