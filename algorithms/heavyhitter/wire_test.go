package heavyhitter

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/internal/statetest"
)

// TestPartialsAreBounded: pieces of a full sketch with many candidates survive the wire and stay below 64 KiB.
func TestPartialsAreBounded(t *testing.T) {
	s := NewSketch(Options{Rows: 4, Width: 8000, Threshold: 0.0005})
	for i := range 3000 {
		s.candidates.add(Candidate{uint64(i), item(fmt.Sprintf("a key that is as long as a key can be %d", i), 0).Key}, fresh)
	}
	for i := range uint64(200_000) {
		s.counts.Update(i*0x9e3779b97f4a7c15, 1.5)
	}
	list := slices.Collect(s.partials())
	require.Len(t, list, 8+6)
	total := 0.0
	for _, p := range list {
		total += p.Total
		wire, err := p.AppendBinary([]byte("before"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(wire), 64<<10)
		var q Partial
		require.NoError(t, q.UnmarshalBinary(wire[6:]))
		require.Equal(t, fmt.Sprint(p), fmt.Sprint(q))
	}
	require.Equal(t, 300_000.0, total)
}

// TestEmptyPartials: an empty sketch emits one piece, which says that its total is 0; zeros are not sent.
func TestEmptyPartials(t *testing.T) {
	s := NewSketch(options)
	require.Equal(t, []Partial{{Rows: 4, Width: 2000, Candidates: []Candidate{}}}, slices.Collect(s.partials()))
	require.NoError(t, s.Process(item("k", 2), nil))
	cells := 0
	for _, p := range slices.Collect(s.partials()) {
		cells += len(p.Cells)
		require.True(t, len(p.Cells) == 0 || p.Cells[0] == 2 && p.Cells[len(p.Cells)-1] == 2)
	}
	require.GreaterOrEqual(t, cells, 4)
}

func TestPartialEncodeRejects(t *testing.T) {
	for name, p := range map[string]Partial{
		"no shape":            {},
		"overflow":            {Rows: math.MaxInt32, Width: math.MaxInt32},
		"too many cells":      {Rows: 1, Width: 1 << 20, Cells: make([]float64, maxCells+1)},
		"too many candidates": {Rows: 1, Width: 1, Candidates: make([]Candidate, maxCandidates+1)},
		"infinite":            {Rows: 1, Width: 1, Cells: []float64{math.Inf(1)}},
	} {
		_, err := p.AppendBinary(nil)
		require.ErrorIs(t, err, ErrPartial, name)
	}
}

func FuzzPartial(f *testing.F) {
	s := NewSketch(Options{Rows: 2, Width: 4, Threshold: 0.5})
	require.NoError(f, s.ProcessBatch([]connector.Keyed{item("a", 1), item("b", 2)}, nil))
	statetest.FuzzBinary(f, ErrPartial, nil, slices.Collect(s.partials())...)
}

func FuzzRow(f *testing.F) {
	statetest.FuzzBinary(f, ErrRow, statetest.Canonical, Row{Rank: 1, Key: item("k", 0).Key, Estimate: 2, Share: 0.5})
}

func TestCompare(t *testing.T) {
	exact := exactOf(t, []connector.Keyed{item("a", 6), item("b", 3), item("c", 1), item("zero", 0)})
	row := func(key string, estimate float64) Row { return Row{Key: item(key, 0).Key, Estimate: estimate} }
	for name, c := range map[string]struct {
		rows      []Row
		exact     *Exact
		threshold float64
		want      Quality
	}{
		"perfect":  {[]Row{row("a", 6), row("b", 3)}, exact, 0.3, Quality{1, 1, 0, 2, 2, 2}},
		"mixed":    {[]Row{row("a", 9), row("c", 1)}, exact, 0.3, Quality{0.5, 0.5, 0.5, 2, 2, 1}},
		"twice":    {[]Row{row("a", 6), row("a", 6)}, exact, 0.5, Quality{0.5, 1, 0, 2, 1, 1}},
		"nothing":  {nil, exact, 0.3, Quality{1, 0, 0, 0, 2, 0}},
		"no truth": {[]Row{row("a", 6)}, exact, 0.9, Quality{0, 1, 0, 1, 0, 0}},
		"neither":  {nil, exact, 0.9, Quality{1, 1, 0, 0, 0, 0}},
		"empty":    {nil, NewExact(), 0, Quality{1, 1, 0, 0, 0, 0}},
	} {
		require.Equal(t, c.want, Compare(c.rows, c.exact, c.threshold), name)
	}
}

func TestExact(t *testing.T) {
	e := exactOf(t, []connector.Keyed{item("a", 1), item("b", 2), item("a", 3), item("zero", 0)})
	require.Equal(t, 6.0, e.Total())
	require.Equal(t, 3, e.Len())
	require.Equal(t, 4.0, e.Weight(item("a", 0).Key))
	require.Zero(t, e.Weight(item("x", 0).Key))
	require.Equal(t, []Row{{1, item("a", 0).Key, 4, 4.0 / 6}}, e.Top(1))
	require.Len(t, e.Top(9), 2, "what weighs nothing is no hitter")
	require.Empty(t, e.Top(-1))
}
