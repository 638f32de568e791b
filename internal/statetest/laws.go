package statetest

import (
	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/stream"
)

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

// Mergeable is a state that another partition's can be added to.
type Mergeable interface {
	State
	stream.RestoreState
	stream.Thresholder
}

// AddLaws checks what a change of the number of workers relies on: a restored state that another one is added to (add is
// its MergeState or AddState) holds what one holds that has seen the items of both, and a whole backup of it, which is
// taken before anything else, holds that too and leaves no divergence. a, b and both have seen items; view is what is compared.
func AddLaws[S Mergeable](t require.TestingT, fresh func() S, add func(S, *stream.StateReader) error, view func(S) any, theta float64, a, b, both S) {
	s := fresh()
	s.SetTheta(theta)
	require.NoError(t, s.RestoreState(Reader(Backup(t, a, true))))
	require.NoError(t, add(s, Reader(Backup(t, b, true))))
	require.Equal(t, view(both), view(s), "what both have seen")
	store := NewStore(s)
	store.Save(t, true)
	require.Zero(t, s.StateDivergence(), "after it was saved as a whole")
	restored := fresh()
	restored.SetTheta(theta)
	require.NoError(t, restored.RestoreState(Reader(store.Durable()...)))
	require.Equal(t, view(both), view(restored), "what was saved")
	require.Equal(t, view(both), view(s))
}
