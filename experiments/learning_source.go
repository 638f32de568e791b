package experiments

import (
	"io"
	"math"
	"math/rand/v2"

	"github.com/afstream/afstream/algorithms/logreg"
	"github.com/afstream/afstream/stream"
)

// Shape of the examples that the experiments on learning make up: of each of some groups of categories one.
const (
	groups     = 16
	categories = 16
	weightBits = 8 // 2^8 = groups * categories
)

// truth is a logistic model that labels examples, so that the least possible loss is known.
type truth struct {
	seed    uint64
	weights [groups * categories]float64
}

// newTruth draws a model.
func newTruth(seed uint64) *truth {
	m := &truth{seed: seed}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range m.weights {
		m.weights[i] = 0.5 * rng.NormFloat64()
	}
	return m
}

// example returns the example of a number, which depends on it and the seed alone. Its features are appended to room.
func (m *truth) example(number uint64, room []logreg.Feature) (logreg.Example, []logreg.Feature) {
	rng := rand.NewPCG(m.seed, number+1)
	from, z := len(room), 0.0
	var bits uint64
	for g := range groups {
		if g%8 == 0 { // 8 bits for each category
			bits = rng.Uint64()
		}
		u := bits & 0xff
		bits >>= 8
		at := g*categories + int(u*u/4096) // low categories are frequent; at most 255*255/4096 = 15
		z += m.weights[at]
		room = append(room, logreg.Feature{Index: uint32(at), Value: 1})
	}
	draw := float64(rng.Uint64()>>11) / (1 << 53)
	return logreg.Example{Positive: draw < sigmoid(z), Features: room[from:len(room):len(room)]}, room
}

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

// open is the source of the first n examples: partition p of q has those of the numbers p, p+q, p+2q and so on.
func (m *truth) open(n uint64) stream.NewSource[logreg.Example] {
	return func(part, parts int) (stream.Source[logreg.Example], error) {
		own := (n + uint64(parts) - 1 - uint64(part)) / uint64(parts)
		return &exampleSource{truth: m, first: uint64(part), step: uint64(parts), total: own}, nil
	}
}

// exampleSource makes examples as they are read. It can be read again.
type exampleSource struct {
	truth       *truth
	first, step uint64
	done, total uint64
	room        []logreg.Feature
}

// Read implements stream.Source.
func (s *exampleSource) Read(dst []logreg.Example) (int, error) {
	n := int(min(uint64(len(dst)), s.total-s.done))
	if n == 0 {
		return 0, io.EOF
	}
	s.room = make([]logreg.Feature, 0, n*groups) // examples keep their features
	for i := range dst[:n] {
		dst[i], s.room = s.truth.example(s.first+s.done*s.step, s.room)
		s.done++
	}
	return n, nil
}

// Close implements stream.Source.
func (s *exampleSource) Close() error { return nil }

// Position implements stream.Replayable.
func (s *exampleSource) Position() stream.Position { return stream.Position{Item: s.done} }

// Seek implements stream.Replayable.
func (s *exampleSource) Seek(p stream.Position) error {
	s.done = min(p.Item, s.total)
	return nil
}

// Progress implements stream.Progresser.
func (s *exampleSource) Progress() (done, total int64) { return int64(s.done), int64(s.total) }

// heldOut is how many examples, of numbers that no source has, the loss is measured on.
const heldOut = 2000

// test returns the held-out examples and the mean loss on them of the model that made them: no other can be expected to
// do better.
func (m *truth) test() (examples []logreg.Example, least float64) {
	var room []logreg.Feature
	for i := range uint64(heldOut) {
		var e logreg.Example
		e, room = m.example(1<<63+i, room)
		examples = append(examples, e)
	}
	return examples, meanLoss(examples, func(e *logreg.Example) float64 {
		z := 0.0
		for _, f := range e.Features {
			z += m.weights[f.Index]
		}
		return sigmoid(z)
	})
}

// meanLoss returns the log-loss of predictions.
func meanLoss(examples []logreg.Example, predict func(*logreg.Example) float64) float64 {
	loss := 0.0
	for i := range examples {
		p := predict(&examples[i])
		if !examples[i].Positive {
			p = 1 - p
		}
		loss -= math.Log(max(p, 1e-15))
	}
	return loss / float64(len(examples))
}
