package job

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/controller"
	"github.com/afstream/afstream/worker"
)

// TestDistinctThroughFailures checks what the job says about itself under every guarantee.
func TestDistinctThroughFailures(t *testing.T) {
	throughFailures(t, part{n: 1}, allPromises(), map[string][]string{
		"all": {"distinct/0@1000", "distinct/1@2000", "items/0@50%", "merge/0@1"}, // the sink has one item only
	}, func(t *testing.T, c trial) {
		d := DefaultDistinct()
		c.in(&d.Engine)
		d.Precision, d.Theta, d.L, d.Gamma = 12, 40, 20, 20
		d.Input = connector.KeyedOptions{}
		d.Generator = connector.ZipfOptions{Items: 8000, Keys: 5000}
		r, err := d.Run(t.Context())
		v := survived(t, c, r, err)
		require.Zero(t, v.HighRegisters)
		require.LessOrEqual(t, v.Low, v.High)
		require.Equal(t, c.promise != worker.None, r.Checks()[0].Promised())
		if c.exact() {
			require.Zero(t, v.LowRegisters, "exact")
		}
		if c.promise != worker.None {
			require.InEpsilon(t, float64(v.Quality.Keys), float64(r.Outcome.Keys), 0.1)
		}
	})
}

func TestDistinctBounds(t *testing.T) {
	d := DefaultDistinct()
	d.Theta, d.L, d.Gamma = 50, 10, 100
	for _, c := range []struct {
		name        string
		change      func(d *Distinct)
		state, lost float64
	}{
		{"replay", func(*Distinct) {}, 50, 0},
		{"pipe", func(d *Distinct) { d.PipeSources = true }, 160, 110},
		{"mini-batch", func(d *Distinct) { d.Guarantee = worker.MiniBatch }, 0, 0},
		{"none", func(d *Distinct) { d.Guarantee = worker.None }, math.Inf(1), math.Inf(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := d
			c.change(&d)
			v := &DistinctVerification{}
			d.bounds(v, &controller.Result{Failures: []controller.Failure{{Operator: "items"}}})
			require.Equal(t, Number(c.state), v.StateDivergenceBound)
			require.Equal(t, Number(c.lost), v.LostItemsBound)
		})
	}
}

// TestDistinctFindsBrokenBounds breaks each bound of a run that kept them.
func TestDistinctFindsBrokenBounds(t *testing.T) {
	d := DefaultDistinct()
	d.Verify = true
	r, err := d.Run(t.Context())
	require.NoError(t, err)
	requireBroken(t, *r.Verify, map[string]func(v *DistinctVerification){
		"registers too low":  func(v *DistinctVerification) { v.StateDivergence = 101 },
		"registers too high": func(v *DistinctVerification) { v.HighRegisters = 1 },
		"without failures":   func(v *DistinctVerification) { v.CleanDivergence = 1 },
		"items lost":         func(v *DistinctVerification) { v.LostItems = 1 },
	})
}

func TestDistinctAnswers(t *testing.T) {
	for content, want := range map[string]string{
		"a\nb\na\nc\n": "about 3 different keys, standard error 0.81%; exactly 3\n",
		"":             "about 0 different keys, standard error 0.81%; exactly 0\n",
	} {
		d := DefaultDistinct()
		d.Input, d.Verify = connector.KeyedOptions{Path: textFile(t, content).Path}, true
		r, err := d.Run(t.Context())
		require.NoError(t, err)
		var text, raw bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.True(t, strings.HasPrefix(text.String(), want), text.String())
		require.NoError(t, r.WriteJSON(&raw))
		require.Contains(t, raw.String(), `"relative_error": 0`)
	}
}

func TestDistinctSettings(t *testing.T) {
	requireRefused(t, DefaultDistinct, func(d *Distinct) *Engine { return &d.Engine }, Distinct.Run, map[string]func(d *Distinct){
		"engine":    func(d *Distinct) { d.Workers = 0 },
		"items":     func(d *Distinct) { d.Input.Path, d.Generator.Items = "", 0 },
		"precision": func(d *Distinct) { d.Precision = 3 },
		"stdin":     func(d *Distinct) { d.Input.Path, d.Verify = connector.Stdin, true },
	})
}
