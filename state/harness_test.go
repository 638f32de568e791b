package state

import (
	"math"

	"pgregory.net/rapid"

	"github.com/afstream/afstream/internal/statetest"
	"github.com/afstream/afstream/stream"
)

// ready is what every state of this package can do.
type ready interface {
	statetest.State
	stream.RestoreState
	stream.Measurer
}

func thetas(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{0, 0.5, 1, 3, 10, 100, 2500}).Draw(t, "theta")
}

// changed returns a state after it was changed.
func changed[S any](s S, change func(S)) S {
	change(s)
	return s
}

var inf = math.Inf(1)
