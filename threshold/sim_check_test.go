package threshold_test

import (
	"github.com/afstream/afstream/errorbound"
)

// checkClose compares the state that a close is run from with that of its first run.
func (s *sim) checkClose(p *partition, w int) {
	sum := 0.0
	for k, e := range p.elems {
		sum += e.value * float64(k+1)
		for _, u := range e.uids {
			sum += float64(u) * 1e-3
		}
	}
	key := [3]int{p.op.id, p.index, w}
	if first, ok := s.closes[key]; ok && first != sum {
		s.fail("%v runs the close of window %d from another state than before", p, w)
	}
	s.closes[key] = sum
}

// checkEnd compares the end of the run with the failure-free run of the same input.
func (s *sim) checkEnd() {
	for _, o := range s.ops {
		if !o.source {
			s.checkState(o)
		}
		if o.consumer != nil {
			s.checkOutputs(o)
		}
	}
}

// atEnd returns, per item, how often it is in the operator's state, and the state itself summed over its partitions
// (disjoint states have their keys to themselves).
func (s *sim) atEnd(o *operator) (times []int, state []float64, keys []bool) {
	times, state, keys = make([]int, len(s.items)), make([]float64, o.keys), make([]bool, o.keys)
	for _, p := range o.parts {
		for k, e := range p.elems {
			state[k] += e.value
			keys[k] = keys[k] || len(e.uids) > 0
			for _, u := range e.uids {
				times[s.uidItem[u]]++
			}
		}
	}
	return times, state, keys
}

func (s *sim) checkState(o *operator) {
	times, state, keys := s.atEnd(o)
	missing, ideal := make([]float64, o.keys), make([]float64, o.keys) // by what o's own failures cost; failure-free
	present := make([]bool, o.keys)
	for _, id := range o.expected {
		it := s.items[id]
		ideal[it.key] += it.value
		present[it.key] = true
		risky := s.ops[it.by].sends == atRisk
		if times[id] == 0 && (s.owned[id] || !risky) {
			missing[it.key] += o.change(&it)
		}
	}
	if o.norm == errorbound.Count {
		for k := range keys {
			if keys[k] {
				missing[k] = 0
			}
			ideal[k], state[k] = number(present[k]), number(keys[k])
		}
	}
	bound := o.params.Theta
	if o.riskyInput() {
		bound = o.params.StateBound(o.alpha)
	}
	d := normOf(o.norm, missing)
	s.stats.missing.note(d, bound)
	if d > bound*(1+1e-9) {
		s.fail("operator %d (%v, %v, %d partitions): its failures cost %v, the bound is %v", o.id, o.norm, o.combine,
			len(o.parts), d, bound)
	}
	upstream := s.lostBound(o) + s.repeatBound(o)
	diff := make([]float64, o.keys)
	for k := range diff {
		diff[k] = ideal[k] - state[k]
	}
	if d, most := normOf(o.norm, diff), bound+o.alpha*upstream; d > most*(1+1e-9) {
		s.fail("operator %d is %v from the failure-free run, the bound is %v", o.id, d, most)
	}
	if s.failureFree() && normOf(o.norm, diff) != 0 {
		s.fail("operator %d differs from the failure-free run without a failure", o.id)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (s *sim) failureFree() bool { return s.stats.crashes == 0 }

// checkOutputs counts what became of the outputs of an operator.
func (s *sim) checkOutputs(o *operator) {
	var lost, unemitted, repeated float64
	for _, id := range o.consumer.expected {
		if s.items[id].by != o.id || o.sends != atRisk {
			continue
		}
		switch {
		case s.emitted[id] == 0:
		case !s.owned[id]:
			lost++
		default:
			repeated += float64(s.emitted[id] - 1)
		}
	}
	for _, id := range o.expected {
		if !s.owned[id] && s.ops[s.items[id].by].sends == atRisk {
			continue // never was o's to process
		}
		for _, out := range s.items[id].outs {
			if s.emitted[out] == 0 {
				unemitted++
			}
		}
	}
	s.stats.lost.note(lost, s.gammaBound(o))
	s.stats.repeated.note(repeated, s.repeatsOf(o))
	if most := s.gammaBound(o); lost > most {
		s.fail("operator %d lost %v items as a sender, gamma and overdraft allow %v", o.id, lost, most)
	}
	if o.sends != atRisk || o.source {
		return
	}
	if most := s.repeatsOf(o); repeated > most {
		s.fail("operator %d emitted %v items twice, the bound is %v", o.id, repeated, most)
	}
	most := 0.0
	if o.riskyInput() {
		most = float64(o.params.L) * float64(s.beta)
	}
	s.stats.unemitted.note(unemitted, most)
	if unemitted > most {
		s.fail("operator %d did not emit %v outputs of items it had acknowledged, the bound is %v", o.id, unemitted, most)
	}
}

// gammaBound is Gamma with what the least window of one item may add.
func (s *sim) gammaBound(o *operator) float64 {
	return float64(o.params.Gamma + o.params.Overdraft(len(o.parts), o.maxFailures))
}

// repeatsOf is L*beta, likewise.
func (s *sim) repeatsOf(o *operator) float64 {
	if !o.emits() {
		return 0
	}
	p := errorbound.Params{Gamma: o.params.L, Series: o.params.Series}
	return float64(s.beta) * float64(o.params.L+p.Overdraft(len(o.parts), o.maxFailures))
}

// lostBound is the most items of o's input that failures upstream may cost.
func (s *sim) lostBound(o *operator) float64 {
	sum := 0.0
	for _, in := range o.inputs {
		if in.sends != atRisk {
			continue
		}
		sum += s.gammaBound(in)
		if in.emits() {
			if in.riskyInput() {
				sum += float64(s.beta) * float64(in.params.L)
			}
			sum += float64(s.beta) * s.lostBound(in)
		}
	}
	return sum
}

// repeatBound is the most items of o's input that failures upstream may repeat.
func (s *sim) repeatBound(o *operator) float64 {
	sum := 0.0
	for _, in := range o.inputs {
		if in.emits() {
			sum += s.repeatsOf(in) + float64(s.beta)*s.repeatBound(in)
		}
	}
	return sum
}
