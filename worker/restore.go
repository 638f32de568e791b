package worker

import (
	"fmt"

	"github.com/afstream/afstream/backup"
	"github.com/afstream/afstream/stream"
	"github.com/afstream/afstream/transport"
)

// load reads what the store has of a partition; nil if there is nothing or no store.
func (c *core) load() (*backup.Restored, error) {
	if c.store == nil {
		return nil, nil
	}
	r, err := c.store.Load()
	if err != nil {
		return nil, fmt.Errorf("restore %s partition %d: %w", c.w.cfg.Node.Name, c.index, err)
	}
	for _, damage := range r.Damaged {
		c.w.log.Warn("skipped a damaged backup", "operator", c.w.cfg.Node.Name, "partition", c.index, "err", damage)
	}
	if !r.Found {
		return nil, nil
	}
	return r, nil
}

// restore brings back the state and the positions, and reads the item log.
func (o *operator) restore() error {
	r, err := o.load()
	if err != nil {
		return err
	}
	if r != nil {
		for _, in := range r.Inputs {
			for i := range o.inputs {
				if o.inputs[i].Channel == in.Channel {
					o.inputs[i].Position = in.Position
				}
			}
		}
		o.closed, o.pending = decodeClosing(r.Closing)
		if o.w.replay == Retains {
			if err := o.renumber(r.Outputs); err != nil {
				return err
			}
		}
		if err := o.restoreState(r); err != nil {
			return fmt.Errorf("restore state of %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
		}
	} else if err := o.adopt(); err != nil {
		return err
	}
	if c, ok := o.task.Operator().(stream.Compensator); ok && o.w.cfg.Failures > 0 && o.policy != nil && !o.adopted { // a state that was adopted lacks nothing
		o.compensate(c, r)
	}
	if err := o.readLog(); err != nil {
		return fmt.Errorf("read item log of %s partition %d: %w", o.w.cfg.Node.Name, o.index, err)
	}
	if r != nil || len(o.log) > 0 {
		o.logged.Store(1) // what it was given last time: that is cleared by a commit after the first item of this time
	}
	o.rebuild.restore(o, r)
	o.position()
	return nil
}

// renumber goes on with the output numbers of a commit. The window that was closed last has been counted already unless
// its close is still to run.
func (o *operator) renumber(outputs []uint64) error {
	n := len(o.exit.next)
	if len(outputs) != n+2 {
		return fmt.Errorf("restore %s partition %d: the backup has %d output channels, the topology %d",
			o.w.cfg.Node.Name, o.index, len(outputs)-2, n)
	}
	copy(o.exit.next, outputs)
	o.exit.windows, o.exit.level = outputs[n], outputs[n+1]
	o.task.Resume(o.exit.sent())
	if !o.pending {
		o.exit.level, o.exit.ended = o.closed.Number, o.closed.Last
		o.opened = append(o.opened, o.exit.next...)
	}
	return nil
}

// compensate tells the operator what may have been lost since its restored backup was made: usually by one failure,
// but an incarnation that fails before its first commit takes the compensation for the failures before it along.
func (o *operator) compensate(c stream.Compensator, r *backup.Restored) {
	first := uint64(0)
	if r != nil {
		first = o.w.cfg.failuresBefore(r.Epoch)
	}
	var theta float64
	var lost uint64
	for k := first; k < o.w.cfg.Failures; k++ {
		b := split(&o.w.cfg, o.measure, k)
		if o.w.cfg.Node.Forget != 0 { // its thresholds may have risen again
			b = split(&o.w.cfg, o.measure, 0)
		}
		theta += o.w.cfg.thetaAfter(k, o.measure, b.Theta)
		if o.w.cfg.InputsAtRisk {
			lost += b.L
		}
	}
	c.Compensate(theta, lost)
}

// restoreState feeds the backup to the operator, chunk by chunk.
func (o *operator) restoreState(r *backup.Restored) error {
	if o.state.restore == nil {
		return nil
	}
	defer r.Stop()
	reader := stream.NewStateReader(func() ([]byte, error) {
		c, err := r.Chunks()
		return c.Data, err
	})
	if err := o.state.restore.RestoreState(reader); err != nil {
		return err
	}
	return reader.Err()
}

// readLog takes the logged items above the committed positions, to be processed before anything else.
func (o *operator) readLog() error {
	if o.store == nil {
		return nil
	}
	return o.store.ScanLog(func(e backup.LogEntry) error {
		for i := range o.inputs {
			if o.inputs[i].Channel == e.Channel {
				return o.replay(i, e)
			}
		}
		return fmt.Errorf("channel %d is not in the topology", e.Channel)
	})
}

func (o *operator) replay(input int, e backup.LogEntry) error {
	edge, from := int(e.Channel>>32), int(uint32(e.Channel))
	d := delivery{
		Frame: transport.Frame{
			Kind: transport.Kind(e.Kind), Channel: transport.Channel{Edge: edge, From: from, To: o.index},
			Epoch: e.Epoch, First: e.First, Count: e.Count,
		},
		input: input, position: e.Epoch,
	}
	// The log is cleared by commits, and a mark may be beyond it, perhaps in a later incarnation of the sender.
	switch p := o.inputs[input].Position; {
	case !p.Less(backup.Position{Epoch: e.Epoch, Seq: d.Next()}):
		d.skip = e.Count
	case p.Epoch == e.Epoch && p.Seq > e.First:
		d.skip = int(p.Seq - e.First)
	}
	if d.Kind == transport.Data && d.skip == e.Count {
		return nil
	}
	if d.Kind == transport.Punctuation {
		d.repeated = d.skip > 0 // its position is known, but not that it was an end
		var err error
		if d.Window, err = decodeWindow(e.Items); err != nil {
			return err
		}
	} else {
		slab, err := o.w.cfg.Node.Inputs[edge].Decode(e.Items)
		if err != nil {
			return err
		}
		if slab.Len() != e.Count {
			return fmt.Errorf("entry of %d items holds %d", e.Count, slab.Len())
		}
		d.Slab = slab
	}
	o.log = append(o.log, d)
	return nil
}

// position tells the upstream stage what is here already: committed, or in the log.
func (o *operator) position() {
	part := o.index % o.w.cfg.Node.Compute
	at := make([]backup.Position, len(o.inputs))
	for i := range o.inputs {
		at[i] = o.inputs[i].Position
	}
	for i := range o.log {
		d := &o.log[i]
		if p := (backup.Position{Epoch: d.position, Seq: d.Next()}); at[d.input].Less(p) {
			at[d.input] = p
		}
	}
	for _, edge := range o.w.up.channels {
		for _, ch := range edge[part] {
			if ch != nil {
				ch.epoch, ch.next, ch.acked = at[ch.input].Epoch, at[ch.input].Seq, at[ch.input].Seq
				ch.safe.position = ch.next
				ch.level, ch.ended = o.closed.Number, o.closed.Last
			}
		}
	}
	for i := range o.log {
		if d := &o.log[i]; d.Kind == transport.Punctuation && d.Window.Last {
			o.w.up.channels[d.Channel.Edge][part][d.Channel.From].ended = true
		}
	}
	for i := range o.inputs {
		o.committed[i].Store(o.inputs[i].Seq)
	}
}
