//go:build invariants

package experiments

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// readAll reads a source in pieces of the given size.
func readAll(t *testing.T, s stream.Source[logreg.Example], size int) (all []logreg.Example) {
	t.Helper()
	room := make([]logreg.Example, size)
	for {
		n, err := s.Read(room)
		all = append(all, room[:n]...)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
	}
}

// TestExamplesCanBeReadAgain compares parts, pieces and rereading with the whole.
func TestExamplesCanBeReadAgain(t *testing.T) {
	m := newTruth(7)
	whole, err := m.open(103)(0, 1)
	require.NoError(t, err)
	want := readAll(t, whole, 10)
	require.Len(t, want, 103)
	for part := range 4 {
		s, err := m.open(103)(part, 4)
		require.NoError(t, err)
		got := readAll(t, s, 3)
		for i, e := range got {
			require.Equal(t, want[part+4*i], e)
		}
		require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: 5}))
		require.Equal(t, got[5:], readAll(t, s, 100))
	}
	for _, e := range want {
		require.Len(t, e.Features, groups)
		for g, f := range e.Features {
			require.Equal(t, g, int(f.Index)/categories)
		}
	}
}

// TestLeastLoss checks the reference against what the labels really cost.
func TestLeastLoss(t *testing.T) {
	m := newTruth(1)
	test, least := m.test()
	require.Less(t, least, math.Ln2)
	require.InDelta(t, math.Ln2, meanLoss(test, func(*logreg.Example) float64 { return 0.5 }), 1e-12)
	wrong := newTruth(2)
	require.Greater(t, meanLoss(test, func(e *logreg.Example) float64 {
		z := 0.0
		for _, f := range e.Features {
			z += wrong.weights[f.Index]
		}
		return sigmoid(z)
	}), least)
}

func TestConverged(t *testing.T) {
	l := learned{least: 0.5, curve: curve{points: []lossPoint{{0.1, 1, 0.6}, {0.2, 2, 0.505}, {0.3, 3, 0.52}, {0.4, 4, 0.505}, {0.5, 5, 0.501}}}}
	seconds, share := l.converged()
	require.Equal(t, 4.0, seconds, "from then on for good")
	require.Equal(t, 0.4, share)
	require.Equal(t, 0.505, l.at(0.195))
	require.Equal(t, 0.505, l.at(0.209))
	require.True(t, math.IsNaN(l.at(0.25)))
	l.curve.points = l.curve.points[:3]
	seconds, _ = l.converged()
	require.True(t, math.IsNaN(seconds))
}

func TestTinyConvergence(t *testing.T) {
	l := learning{
		consistency: logreg.BulkSynchronous, learners: 2, failures: 2, examples: 20_000, params: errorbound.Params{Theta: 10, L: 100, Gamma: 100},
	}
	got := runCase(t, Convergence(), convergenceCase(l))
	require.Equal(t, 2.0, got[struckColumn.Name])
	require.Less(t, got["loss_100"], got["loss_20"], "it learns")
	require.Less(t, got[excessColumn.Name], 0.05)
}
