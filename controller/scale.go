package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/cluster"
	"github.com/afstream/afstream/stream"
)

// ErrScale is wrapped by the errors that Scale.Done is told.
var ErrScale = errors.New("number of workers was not changed")

// Scale asks for another number of workers of one operator while the job runs. The job is brought to rest (worker.Hold), its
// workers end without losing anything, and those of the next layout go on with their states. It costs nothing of the error
// budget. What was spent stays spent: the workers of the operator have as many failures as the one that had most.
//
// Operators can be scaled whose state can be divided (stream.MergeState, stream.Keyed), or that have none, in jobs
// whose sources can go back and that make backups; see worker.Pausable and stream.Node.Division for what else is in the way.
type Scale struct {
	Operator string
	Workers  int
	// Done is told once what has become of it, from the goroutine that runs RunLocal: nil when the new workers have saved
	// what they have taken over. May be nil. It must not block.
	Done func(error)
}

// scaling is a change of the number of workers under way.
type scaling struct {
	Scale
	node    *stream.Node
	round   uint64
	pausing bool // sources have stopped, and all are told to come to rest
	settles bool // the new workers run, and are saving what they have taken over
}

func (s *scaling) done(err error) {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrScale, err)
	}
	if s.Done != nil {
		s.Done(err)
	}
}

// rested is told by workers that they may be at rest.
func (r *run) rested() {
	select {
	case r.rests <- struct{}{}:
	default: // there is one that nobody has looked at yet, which will do
	}
}

// scale begins to change the number of workers of an operator.
func (r *run) scale(s Scale) {
	sc := &scaling{Scale: s}
	if err := r.scalable(sc); err != nil {
		sc.done(err)
		return
	}
	r.scaling = sc
	r.nextRound()
}

// scalable says what is in the way.
func (r *run) scalable(sc *scaling) error {
	i := slices.IndexFunc(r.nodes, func(n *stream.Node) bool { return n.Name == sc.Operator })
	if i < 0 {
		return fmt.Errorf("there is no operator %q", sc.Operator)
	}
	sc.node = r.nodes[i]
	switch {
	case sc.Workers < 1:
		return fmt.Errorf("operator %q needs at least one worker, not %d", sc.Operator, sc.Workers)
	case sc.Workers == sc.node.Workers:
		return fmt.Errorf("operator %q has %d workers already", sc.Operator, sc.Workers)
	case r.result.Interrupted:
		return errors.New("the job is being interrupted")
	case len(r.divisions) > 0:
		return errors.New("theta is divided by load among the workers that there are: run the job with the equal allocation")
	}
	for _, s := range r.slots {
		if s.loaded == nil {
			continue
		}
		if err := s.loaded.Pausable(); err != nil {
			return err
		}
		if s.node == sc.node {
			if err := s.loaded.Scalable(); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextRound has the workers come to rest, again if one of them was replaced meanwhile.
func (r *run) nextRound() {
	sc := r.scaling
	if sc == nil || sc.settles {
		return
	}
	r.round++
	sc.round, sc.pausing = r.round, false
	for _, s := range r.slots {
		if s.loaded != nil {
			s.loaded.Hold(sc.round)
		}
	}
}

// look takes the next step of a change that is under way, if it is due.
func (r *run) look(ctx context.Context) error {
	sc := r.scaling
	switch {
	case sc == nil:
	case sc.settles:
		if r.all(func(s *slot) bool { return s.loaded.Settled() }) {
			return r.settle()
		}
	case !sc.pausing:
		window := uint64(0)
		held := r.all(func(s *slot) bool {
			if !s.node.IsSource {
				return true
			}
			round, sent := s.loaded.Held()
			window = max(window, sent)
			return round == sc.round
		})
		if held {
			sc.pausing = true
			for _, s := range r.slots {
				s.loaded.Pause(sc.round, window)
			}
		}
	default:
		var cannot error
		paused := r.all(func(s *slot) bool {
			round, err := s.loaded.Paused()
			cannot = errors.Join(cannot, err)
			return round == sc.round
		})
		if cannot != nil {
			r.giveUp(cannot)
		} else if paused {
			return r.nextLayout(ctx)
		}
	}
	return nil
}

// all says whether ok holds for every worker, all of which must be there.
func (r *run) all(ok func(*slot) bool) bool {
	every := true
	for _, s := range r.slots {
		every = s.loaded != nil && ok(s) && every
	}
	return every
}

// giveUp lets the job go on as it is.
func (r *run) giveUp(why error) {
	sc := r.scaling
	if sc == nil {
		return
	}
	r.scaling = nil
	for _, s := range r.slots {
		if s.loaded != nil && !sc.settles {
			s.loaded.Resume()
		}
	}
	sc.done(why)
}

// nextLayout ends all workers, which are at rest, and runs those of the next layout.
func (r *run) nextLayout(ctx context.Context) error {
	sc := r.scaling
	for _, s := range r.slots {
		s.loaded.Stop()
	}
	if err := r.endAll(); err != nil {
		return err
	}
	r.former = map[*stream.Node]int{}
	for _, n := range r.nodes {
		r.former[n] = n.Partitions()
		for part := range n.Partitions() {
			if err := backup.Freeze(r.o.Store, r.key(n, part), backup.Frozen); err != nil {
				return fmt.Errorf("scale %q: %w", sc.Operator, err)
			}
		}
	}
	if err := r.topology.Resize(sc.Operator, sc.Workers); err != nil {
		return err
	}
	r.layout++
	r.reseat(sc.node)
	sc.settles = true
	for _, s := range r.slots {
		if err := r.load(ctx, s, nil); err != nil {
			return fmt.Errorf("scale %q: %w", sc.Operator, err)
		}
	}
	r.connectAll()
	r.launchAll(ctx)
	r.o.Log.Info("number of workers changed", "operator", sc.Operator, "workers", sc.Workers, "layout", r.layout)
	if o := r.o.onStart; o != nil {
		o(r.slots)
	}
	r.rested() // who has nothing to take over does not say so
	return nil
}

// endAll waits until every worker has ended.
func (r *run) endAll() error {
	for range r.slots {
		e := <-r.events
		r.account(e.slot, e.w)
		e.w.Close()
		if e.err != nil {
			return e.err
		}
		e.slot.before += e.w.Items()
		e.slot.loaded = nil
		e.slot.current.Store(nil)
	}
	return nil
}

// reseat makes the places of the next layout. Epochs go on from beyond all that there were, so that no two incarnations
// have the same name whatever the layout.
func (r *run) reseat(scaled *stream.Node) {
	epoch := uint64(0)
	for _, s := range r.slots {
		epoch = max(epoch, s.epoch)
	}
	var all [][]uint64
	for _, s := range r.byNode[scaled] {
		all = append(all, s.failedAt)
	}
	failedAt := cluster.WorstFailures(all...)
	var slots []*slot
	for _, n := range r.nodes {
		old := r.byNode[n]
		if n == scaled {
			old = old[:min(len(old), n.Workers)]
			for index := len(old); index < n.Workers; index++ {
				old = append(old[:index:index], &slot{node: n, index: index, totals: old[0].totals})
			}
			for _, s := range old {
				s.failures, s.failedAt = uint64(len(failedAt)), slices.Clone(failedAt)
			}
		}
		for _, s := range old {
			s.epoch, s.failedIn = epoch, make([]uint64, s.failures)
		}
		r.byNode[n] = old
		slots = append(slots, old...)
	}
	r.slots = slots
}

// key names a partition of the present layout in the store.
func (r *run) key(n *stream.Node, part int) backup.PartitionKey {
	return backup.PartitionKey{Job: r.job.Name, Incarnation: r.job.Incarnation, Operator: n.Name, Partition: part, Layout: r.layout}
}

// settle drops the layout before, of which all has been saved in the present one.
func (r *run) settle() error {
	sc := r.scaling
	for n, partitions := range r.former {
		for part := range partitions {
			key := r.key(n, part)
			key.Layout--
			if err := backup.Drop(r.o.Store, key, backup.Frozen); err != nil {
				return fmt.Errorf("scale %q: %w", sc.Operator, err)
			}
		}
	}
	r.scaling = nil
	sc.done(nil)
	return nil
}

// endScaling says what has become of a change that was under way when the job ended.
func (r *run) endScaling() {
	switch sc := r.scaling; {
	case sc == nil:
	case sc.settles: // what is left of the old layout goes with the job
		r.scaling = nil
		sc.done(nil)
	default:
		r.giveUp(errors.New("the job has ended"))
	}
}
