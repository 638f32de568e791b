package controller

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/afstream/afstream/stream"
)

// faultPlan is what is left of the failures to inject.
type faultPlan struct {
	mu      sync.Mutex
	byItems map[*slot][]uint64 // ascending, counted over all incarnations
	byShare []sharedFault      // ascending
	next    atomic.Uint64      // share of the next one in millionths; the largest value when there is none
}

type sharedFault struct {
	slot  *slot
	fault Fault
}

const noShare = ^uint64(0)

func millionths(share float64) uint64 { return uint64(share * 1e6) }

func (p *faultPlan) plan(slots []*slot, faults []Fault) {
	p.byItems = make(map[*slot][]uint64)
	for _, f := range faults {
		for _, s := range slots {
			if s.node.Name != f.Operator || s.index != f.Worker {
				continue
			}
			if f.Share > 0 {
				p.byShare = append(p.byShare, sharedFault{slot: s, fault: f})
			} else {
				p.byItems[s] = append(p.byItems[s], f.Items)
			}
		}
	}
	for _, at := range p.byItems {
		slices.Sort(at)
	}
	slices.SortStableFunc(p.byShare, func(a, b sharedFault) int { return cmp.Compare(a.fault.Share, b.fault.Share) })
	p.arm()
}

func (p *faultPlan) arm() {
	next := noShare
	if len(p.byShare) > 0 {
		next = millionths(p.byShare[0].fault.Share)
	}
	p.next.Store(next)
}

// check says whether failures that wait for a share of the input can ever happen.
func (p *faultPlan) check(slots []*slot) error {
	if len(p.byShare) == 0 {
		return nil
	}
	for _, s := range slots {
		if s.node.IsSource && !s.loaded.Measurable() {
			return fmt.Errorf("%w %q: the size of the input of %q is not known, give a number of items instead of a percentage",
				ErrFault, p.byShare[0].fault, s.node.Name)
		}
	}
	return nil
}

// killAt returns after how many items of its next incarnation a worker is to be killed, and takes that off the plan
// when it is reached.
func (p *faultPlan) killAt(s *slot) uint64 {
	for len(p.byItems[s]) > 0 && p.byItems[s][0] <= s.before {
		p.byItems[s] = p.byItems[s][1:]
	}
	if len(p.byItems[s]) == 0 {
		return 0
	}
	return p.byItems[s][0] - s.before
}

// reached kills the workers whose share of the input has been read. A worker that is down just now is killed once it
// is up again.
func (p *faultPlan) reached(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.byShare[:0]
	for _, f := range p.byShare {
		w := f.slot.current.Load()
		if millionths(f.fault.Share) > millionths(share) || w == nil || w.Halted() {
			left = append(left, f)
			continue
		}
		w.Kill()
	}
	p.byShare = left
	p.arm()
}

// unreached returns the failures that were never injected.
func (p *faultPlan) unreached() []Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []Fault
	for s, at := range p.byItems {
		for _, items := range at {
			if items > s.before {
				left = append(left, Fault{Operator: s.node.Name, Worker: s.index, Items: items})
			}
		}
	}
	for _, f := range p.byShare {
		left = append(left, f.fault)
	}
	slices.SortFunc(left, func(a, b Fault) int { return cmp.Compare(a.String(), b.String()) })
	return left
}

// progress adds up how far the partitions of all sources have come.
type progress struct {
	done, total map[*stream.Node][]atomic.Int64
}

func (p *progress) init(nodes []*stream.Node) {
	p.done, p.total = map[*stream.Node][]atomic.Int64{}, map[*stream.Node][]atomic.Int64{}
	for _, n := range nodes {
		if n.IsSource {
			p.done[n], p.total[n] = make([]atomic.Int64, n.Partitions()), make([]atomic.Int64, n.Partitions())
		}
	}
}

// read takes note of a source partition's progress. It runs once per slab.
func (r *run) read(n *stream.Node, part int, done, total int64) {
	r.progress.done[n][part].Store(done)
	r.progress.total[n][part].Store(total)
	if r.o.OnProgress == nil && r.faults.next.Load() == noShare {
		return
	}
	done, total = 0, 0
	for n, parts := range r.progress.done {
		for i := range parts {
			done += parts[i].Load()
			total += r.progress.total[n][i].Load()
		}
	}
	if r.o.OnProgress != nil {
		r.o.OnProgress(done, total)
	}
	if share := float64(done) / float64(max(total, 1)); total > 0 && millionths(share) >= r.faults.next.Load() {
		r.faults.reached(share)
	}
}
