package threshold_test

import (
	"math"
	"math/rand/v2"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/threshold"
)

// How the output of an operator can be had again after a failure of its sender.
type kind uint8

const (
	atRisk kind = iota // kept until acked, lost with the sender
	rewind             // re-created by seeking in a replayable source
	retain             // re-created by running the close of a window again from its commit
)

// item is what a failure-free run sends over one edge: the unit of loss and duplication.
type item struct {
	key   int     // element of the receiving operator's state that it changes
	value float64 // by how much
	part  int     // receiving partition
	outs  []int32 // items the receiver emits while processing it
	by    int     // operator that emits it
}

// Every operator of a run, sources included.
type operator struct {
	id       int
	source   bool
	sends    kind // meaningless without a consumer
	consumer *operator
	inputs   []*operator
	parts    []*partition
	// budget and state
	params   errorbound.Params
	norm     errorbound.Norm
	combine  errorbound.Combine
	keys     int
	alpha    float64 // the true bound of one item
	told     float64 // what Backup is told: alpha, 0 (unknown) or half of it (wrong)
	self     bool
	net      bool        // its divergence is a distance: changes may cancel
	closing  [][][]int32 // [partition][window]: items emitted at the close (retain)
	expected []int32     // items it receives in a failure-free run

	maxFailures uint64 // of any of its workers
}

// emits reports whether the operator emits while it processes, so that it needs marks.
func (o *operator) emits() bool { return !o.source && o.consumer != nil && o.sends == atRisk }

// riskyInput reports whether any input of the operator is at risk.
func (o *operator) riskyInput() bool {
	for _, in := range o.inputs {
		if in.sends == atRisk {
			return true
		}
	}
	return false
}

func (o *operator) config(k uint64) threshold.Config {
	return threshold.Config{Params: o.params, Norm: o.norm, Combine: o.combine, Partitions: len(o.parts), Failures: k}
}

// newModel draws a topology: a chain of one source and one or two stateful operators, sometimes with a second source
// that feeds the last of them too (a fan-in of channels of different kinds).
func (s *sim) newModel() {
	r := s.rng
	s.addOperator(true)
	for range 1 + r.IntN(2) {
		s.addOperator(false, s.ops[len(s.ops)-1])
	}
	if r.IntN(3) == 0 {
		last := s.ops[len(s.ops)-1]
		s.connect(s.addOperator(true), last)
	}
	for _, o := range s.ops {
		s.placeWorkers(o)
		o.net = !o.riskyInput()
	}
	s.wire()
	for _, o := range s.ops {
		if o.source {
			for _, p := range o.parts {
				s.writeScript(p)
			}
		}
	}
	for _, o := range s.ops {
		if !o.source {
			s.writeOutputs(o)
		}
	}
}

func (s *sim) addOperator(source bool, inputs ...*operator) *operator {
	r := s.rng
	o := &operator{id: len(s.ops), source: source, keys: 1 + r.IntN(5)}
	o.norm = errorbound.Norm(r.IntN(4))
	o.combine = errorbound.Combine(r.IntN(2))
	o.self = r.IntN(2) == 0
	o.alpha = []float64{1, 3}[r.IntN(2)]
	if o.norm == errorbound.Count {
		o.alpha, o.keys = 1, 30
	}
	o.told = []float64{0, o.alpha, o.alpha, o.alpha / 2}[r.IntN(4)]
	o.params = errorbound.Params{
		Theta:  []float64{0, 2, 10, 40, math.Inf(1)}[min(r.IntN(9)/2, 4)],
		L:      []uint64{0, 3, 12, 40}[r.IntN(4)],
		Gamma:  []uint64{0, 1, 8, 24}[r.IntN(4)],
		Series: errorbound.Series(r.IntN(2)),
	}
	switch {
	case source:
		o.sends = []kind{atRisk, rewind}[r.IntN(2)]
	default:
		o.sends = []kind{atRisk, atRisk, retain}[r.IntN(3)]
	}
	s.ops = append(s.ops, o)
	for _, in := range inputs {
		s.connect(in, o)
	}
	return o
}

func (s *sim) connect(from, to *operator) {
	from.consumer = to
	to.inputs = append(to.inputs, from)
}

// placeWorkers gives an operator one to three partitions, grouped into workers that die as a whole.
func (s *sim) placeWorkers(o *operator) {
	n := 1 + s.rng.IntN(3)
	perWorker := 1 + s.rng.IntN(n)
	for i := range n {
		if i%perWorker == 0 {
			s.workers = append(s.workers, &worker{op: o})
		}
		w := s.workers[len(s.workers)-1]
		p := &partition{sim: s, op: o, index: i, worker: w}
		p.store.elems = make([]element, o.keys)
		w.parts = append(w.parts, p)
		o.parts = append(o.parts, p)
		s.parts = append(s.parts, p)
	}
}

func (s *sim) wire() {
	for _, from := range s.parts {
		if from.op.consumer == nil {
			continue
		}
		for _, to := range from.op.consumer.parts {
			c := &channel{kind: from.op.sends, from: from, to: to, fromIdx: len(from.outs), toIdx: len(to.ins)}
			from.outs = append(from.outs, c)
			to.ins = append(to.ins, c)
			s.channels = append(s.channels, c)
		}
	}
	for _, p := range s.parts {
		p.store.at = make([]position, len(p.ins))
		p.store.outSeq = make([]uint64, len(p.outs))
	}
}

// newItem draws an item for the consumer of operator by. Added states get keys and partitions independently, disjoint
// ones by key.
func (s *sim) newItem(by *operator) int32 {
	to := by.consumer
	it := item{key: s.rng.IntN(to.keys), value: to.alpha, by: by.id}
	if to.norm != errorbound.Count {
		it.value = 1 + float64(s.rng.IntN(int(to.alpha)))
		if s.rng.IntN(2) == 0 && s.signed {
			it.value = -it.value
		}
	}
	it.part = s.rng.IntN(len(to.parts))
	if to.combine == errorbound.Disjoint {
		it.part = it.key % len(to.parts)
	}
	id := int32(len(s.items))
	s.items = append(s.items, it)
	to.expected = append(to.expected, id)
	return id
}

// writeScript fixes what a source partition reads: items and punctuation in order.
func (s *sim) writeScript(p *partition) {
	for w := 1; w <= s.windows; w++ {
		for range s.rng.IntN(s.itemsPerWindow + 1) {
			p.script = append(p.script, entry{id: s.newItem(p.op), level: w - 1})
		}
		p.script = append(p.script, entry{id: punctuation, window: w, level: w - 1})
	}
	p.prefix = make([][]uint64, len(p.script)+1)
	p.prefix[0] = make([]uint64, len(p.outs))
	for i, e := range p.script {
		seqs := append([]uint64(nil), p.prefix[i]...)
		for c := range seqs {
			if e.id == punctuation || s.items[e.id].part == c {
				seqs[c]++
			}
		}
		p.prefix[i+1] = seqs
	}
}

// writeOutputs fixes what an operator emits: up to s.beta items per item, or some per key at the close of a window.
// What is emitted does not depend on the state, so that the loss of an item stays countable downstream.
func (s *sim) writeOutputs(o *operator) {
	switch {
	case o.consumer == nil:
	case o.sends == retain:
		for range o.parts {
			windows := make([][]int32, s.windows+1)
			for w := 1; w <= s.windows; w++ {
				for range s.rng.IntN(4) {
					windows[w] = append(windows[w], s.newItem(o))
				}
			}
			o.closing = append(o.closing, windows)
		}
	default:
		for _, id := range o.expected {
			var outs []int32
			for range s.rng.IntN(s.beta + 1) {
				outs = append(outs, s.newItem(o))
			}
			s.items[id].outs = outs
		}
	}
}

// rngFor makes the generator of one run; the whole run is a function of the seed.
func rngFor(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0xaf57)) }
