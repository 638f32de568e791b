package worker

import (
	"fmt"
	"io"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/stream"
)

// This file holds how the partitions of a new layout of the job's state begin: with what partitions of the layout before, which
// were all at rest and which nobody writes any more, have saved. Until a partition has saved that in its own layout the old one is
// as it was, so a failure begins again with it. Nothing is in flight at that time, and all channels count from 0 on.

// former returns partition part of the operator in the layout before.
func (c *core) former(part int) (*backup.Restored, error) {
	cfg := &c.w.cfg
	r, err := backup.Read(cfg.Store, backup.PartitionKey{
		Job: cfg.Job.Name, Incarnation: cfg.Job.Incarnation, Operator: cfg.Node.Name, Partition: part, Layout: cfg.Layout - 1,
	})
	switch {
	case err != nil:
		return nil, err
	case len(r.Damaged) > 0: // whatever is older lacks items that no source will read again
		return nil, fmt.Errorf("partition %d of layout %d: %w", part, cfg.Layout-1, r.Damaged[0])
	case !r.Found:
		return nil, fmt.Errorf("partition %d of layout %d has saved nothing", part, cfg.Layout-1)
	}
	return r, nil
}

// adopts says whether there is a layout to take anything over from.
func (c *core) adopts() bool { return c.w.cfg.Layout > 1 && c.w.cfg.Store != nil }

// unsettle takes note that the partition has to save what it has taken over.
func (c *core) unsettle() {
	c.adopted = true
	c.w.unsettled.Add(1)
}

// settledDown takes note that it has.
func (c *core) settledDown() {
	c.adopted = false
	if c.w.unsettled.Add(-1) == 0 {
		c.w.tell()
	}
}

// adopt lets a source go on where the same partition of the layout before stopped.
func (s *source) adopt() error {
	if !s.adopts() {
		return nil
	}
	r, err := s.former(s.index)
	if err != nil {
		return fmt.Errorf("take over %s partition %d: %w", s.w.cfg.Node.Name, s.index, err)
	}
	m := waypoint{next: make([]uint64, len(s.exit.next))}
	if err := m.decode(r.Source); err != nil {
		return fmt.Errorf("position of the source in layout %d: %w", s.w.cfg.Layout-1, err)
	}
	m.windows = 0
	s.waypoints[0] = m
	s.furthest.Store(m.position.Item + m.skip)
	s.unsettle()
	return s.start(m)
}

// settleDown saves what a source has taken over.
func (s *source) settleDown() error {
	if !s.adopted {
		return nil
	}
	m := s.waypoints[0]
	s.next = backup.Commit{Whole: true, Source: m.encode(), Outputs: m.next}
	s.commit(&s.next)
	s.awaitFlight()
	if err := s.settle(); err != nil {
		return err
	}
	s.settledDown()
	return nil
}

// adopt takes over what the partition is due of the layout before.
func (o *operator) adopt() error {
	if !o.adopts() {
		return nil
	}
	if err := o.takeOver(); err != nil {
		return fmt.Errorf("take over state for %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	if o.w.replay == Retains { // the next frames on its channels are of the window after the one that was closed
		o.exit.level, o.exit.ended = o.closed.Number, o.closed.Last
	}
	o.unsettle()
	return nil
}

func (o *operator) takeOver() error {
	cfg := &o.w.cfg
	division := stream.Merging
	if cfg.Former != cfg.Node.Partitions() {
		var err error
		if division, err = cfg.Node.Division(o.task.Operator()); err != nil {
			return err
		}
	}
	if division == stream.ByKey {
		return o.takeKeys()
	}
	// Partition p goes to partition p mod n. One that gets nothing has closed the same windows as the others.
	first := o.index
	if first >= cfg.Former {
		r, err := o.former(first % cfg.Former)
		if err == nil {
			err = o.closedBefore(r, true)
		}
		return err
	}
	for part := first; part < cfg.Former; part += cfg.Node.Partitions() {
		r, err := o.former(part)
		if err != nil {
			return err
		}
		if err := o.closedBefore(r, part == first); err != nil {
			return err
		}
		if err := o.add(r, part == first); err != nil {
			return fmt.Errorf("of partition %d: %w", part, err)
		}
	}
	return nil
}

// closedBefore takes over which window a partition had closed; all at rest have closed the same.
func (o *operator) closedBefore(r *backup.Restored, first bool) error {
	w, pending := decodeClosing(r.Closing)
	switch {
	case pending:
		return fmt.Errorf("the close of window %d is still to run", w.Number)
	case first:
		o.closed = w
	case w != o.closed:
		return fmt.Errorf("one has closed window %d, another %d", o.closed.Number, w.Number)
	}
	return nil
}

// add takes over all of one partition's state.
func (o *operator) add(r *backup.Restored, first bool) error {
	if first {
		return o.restoreState(r)
	}
	if o.state.backup == nil {
		return nil
	}
	defer r.Stop()
	reader := stream.NewStateReader(whole(r))
	if err := o.task.Operator().(stream.MergeState).MergeState(reader); err != nil {
		return err
	}
	return reader.Err()
}

// whole returns the chunks of a state that was saved as a whole and not changed since: each element is in it once.
func whole(r *backup.Restored) func() ([]byte, error) {
	return func() ([]byte, error) {
		c, err := r.Chunks()
		if err == nil && !c.Whole {
			return nil, fmt.Errorf("the state was saved in parts: its partition was not at rest")
		}
		return c.Data, err
	}
}

// takeKeys takes over the elements that belong to the partition, of whichever had them.
func (o *operator) takeKeys() error {
	cfg := &o.w.cfg
	next := func() ([]byte, error) { return nil, io.EOF }
	part, stop := 0, func() {}
	defer func() { stop() }()
	chunks := func() ([]byte, error) { // of all, one after the other
		for {
			b, err := next()
			if err != io.EOF || part == cfg.Former {
				return b, err
			}
			r, err := o.former(part)
			if err != nil {
				return nil, err
			}
			if err := o.closedBefore(r, part == 0); err != nil {
				return nil, err
			}
			next, stop = whole(r), r.Stop
			part++
		}
	}
	keyed, n := o.task.Operator().(stream.Keyed), cfg.Node.Partitions()
	reader := stream.Select(stream.NewStateReader(chunks), func(key []byte) bool {
		to := keyed.PartitionOf(key, n)
		return to < 0 || to == o.index
	})
	if err := o.state.restore.RestoreState(reader); err != nil {
		return err
	}
	return reader.Err()
}

// settleDown saves what the partition has taken over, before it processes anything.
func (o *operator) settleDown() error {
	if !o.adopted {
		return nil
	}
	if err := o.commitWhole(); err != nil {
		return err
	}
	o.settledDown()
	return nil
}
