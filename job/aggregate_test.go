package job

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/algorithms/aggregate"
	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/worker"
)

// TestAggregateThroughFailures checks what the job says about itself, under every guarantee, measure and norm.
func TestAggregateThroughFailures(t *testing.T) {
	check := func(t *testing.T, c trial, a Aggregate) {
		c.in(&a.Engine)
		a.Theta, a.L, a.Gamma = 50, 20, 20
		if a.Measure == aggregate.BySum {
			a.Theta, a.Alpha = 50_000, 5000
		}
		if c.promise == worker.ErrorFree { // which takes its time
			a.Input = connector.KeyedOptions{}
			a.Generator = connector.ZipfOptions{Items: 3000, Keys: 100, S: 1}
			a.Faults = faults(t, "aggregate/0@200", "aggregate/1@500", "items/0@50%", "table/0@1")
		}
		r, err := a.Run(t.Context())
		v := survived(t, c, r, err)
		require.Zero(t, v.Extra)
		require.Equal(t, c.promise != worker.None, r.Checks()[0].Promised())
		if c.exact() {
			require.Zero(t, v.SumCountError, "exact")
		}
	}
	for i, measure := range []aggregate.Measure{aggregate.ByCount, aggregate.BySum} {
		for j, norm := range []errorbound.Norm{errorbound.Max, errorbound.L1} {
			t.Run(fmt.Sprintf("%v, %v", measure, norm), func(t *testing.T) {
				throughFailures(t, part{3, i + j}, allPromises(), map[string][]string{
					"all": {"aggregate/0@2000", "aggregate/1@5000", "items/0@50%", "table/0@1"},
				}, func(t *testing.T, c trial) {
					a := DefaultAggregate()
					a.Measure, a.Norm = measure, norm
					check(t, c, a)
				})
			})
		}
	}
}

func TestAggregateBounds(t *testing.T) {
	a := DefaultAggregate()
	a.Theta, a.L, a.Gamma = 50, 10, 100
	inf := math.Inf(1)
	for _, c := range []struct {
		name        string
		change      func(a *Aggregate)
		state, lost float64
	}{
		{"replay", func(*Aggregate) {}, 50, 0},
		{"pipe", func(a *Aggregate) { a.PipeSources = true }, 50 + 110*7, 110},
		{"error-free", func(a *Aggregate) { a.Guarantee = worker.ErrorFree }, 0, 0},
		{"mini-batch", func(a *Aggregate) { a.Guarantee = worker.MiniBatch }, 0, 0},
		{"none", func(a *Aggregate) { a.Guarantee = worker.None }, inf, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := a
			c.change(&a)
			v := &AggregateVerification{Alpha: 7}
			a.bounds(v, &controller.Result{Failures: []controller.Failure{{Operator: "items"}}})
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
		})
	}
}

// TestAggregateFindsBrokenBounds breaks each bound of a run that kept them.
func TestAggregateFindsBrokenBounds(t *testing.T) {
	a := DefaultAggregate()
	a.Verify = true
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *AggregateVerification){
		"state divergence": func(v *AggregateVerification) { v.StateDivergence = 101 },
		"without failures": func(v *AggregateVerification) { v.CleanDivergence = 1 },
		"items lost":       func(v *AggregateVerification) { v.LostItems = 1 },
		"items repeated":   func(v *AggregateVerification) { v.DuplicatedItems = 1 },
	})
}

func TestAggregateAnswers(t *testing.T) {
	a := DefaultAggregate()
	a.Input = connector.KeyedOptions{Path: textFile(t, "a 1\nb 5\na 2.5\na 10\nc 0.5\nb 1\n").Path}
	a.Least, a.Show, a.Verify = 1, 1, true
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	want := AggregateRow{Key: connector.MakeKey([]byte("a")), Count: 3, Sum: 13.5, Mean: 4.5, Min: 1, Max: 10}
	require.Equal(t, Aggregates{Rows: []AggregateRow{want}, Keys: 2}, r.Outcome)
	var text, raw bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Regexp(t, `\na +3 +13.5 +4.5 +1 +10 +3 +13.5\n\n2 keys\n`, text.String())
	require.NoError(t, r.WriteJSON(&raw))
	require.Contains(t, raw.String(), `"mean": 4.5`)

	a.Least = 100
	r, err = a.Run(t.Context())
	require.NoError(t, err)
	text.Reset()
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "no keys\n")
}

func TestAggregateAboveAlpha(t *testing.T) {
	a := DefaultAggregate()
	a.Measure, a.Alpha = aggregate.BySum, 100
	_, err := a.Run(t.Context())
	require.ErrorIs(t, err, aggregate.ErrValue)
	require.ErrorContains(t, err, "give a larger one")
	a.Measure = aggregate.ByCount
	_, err = a.Run(t.Context())
	require.NoError(t, err, "values do not matter where items count")
}

func TestAggregateSettings(t *testing.T) {
	requireRefused(t, DefaultAggregate, func(a *Aggregate) *Engine { return &a.Engine }, Aggregate.Run, map[string]func(a *Aggregate){
		"engine":  func(a *Aggregate) { a.Compute = 0 },
		"items":   func(a *Aggregate) { a.Input.Path, a.Generator.Items = "", 0 },
		"format":  func(a *Aggregate) { a.Input.Format = "xml" },
		"measure": func(a *Aggregate) { a.Measure = 9 },
		"norm":    func(a *Aggregate) { a.Norm = errorbound.L2 },
		"alpha":   func(a *Aggregate) { a.Measure, a.Alpha = aggregate.BySum, -1 },
		"least":   func(a *Aggregate) { a.Least = math.NaN() },
		"show":    func(a *Aggregate) { a.Show = -1 },
		"stdin":   func(a *Aggregate) { a.Input.Path, a.Verify = connector.Stdin, true },
	})
}
