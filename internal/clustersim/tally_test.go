package clustersim

import (
	"fmt"
	"sync"
)

// tally is what has happened in all runs.
type tally struct {
	mu                                                            sync.Mutex
	jobs, items, failures, moves, zombies, terms, flushed, scaled int
	lost, again                                                   float64 // the most, as a part of what the failures might have cost; where that is much
}

func (s *tally) String() string {
	return fmt.Sprintf("%d jobs with %d items, %d failures, %d moves and %d changes of the number of workers; %d partitions worked beside a successor, %d changes of the leader, "+
		"%d items flushed twice; at most %.2f of the bound were lost, %.2f of the bound came twice",
		s.jobs, s.items, s.failures, s.moves, s.scaled, s.zombies, s.terms, s.flushed, s.lost, s.again)
}

// add takes in one job.
func (s *tally) add(l *ledger, was, may cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs++
	s.items += int(l.plan.n)
	s.zombies += l.zombies
	s.flushed += l.flushed
	s.moves += len(l.moved)
	s.failures += len(l.costs)
	s.scaled += len(l.bounds)
	part := func(was, may uint64) float64 {
		if may < 20 {
			return 0
		}
		return float64(was) / float64(may)
	}
	s.lost, s.again = max(s.lost, part(was.lost, may.lost)), max(s.again, part(was.again, may.again))
}
