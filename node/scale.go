package node

import (
	"errors"

	"github.com/afstream/afstream/cluster"
)

// This file holds what a node does while the number of workers of an operator changes: what the phase in the record wants of each
// worker, and nothing that was not read there. Which of them are at rest, and what follows, is for the controller to say.

// scaling is what a record wants of a worker.
type scaling struct {
	phase  cluster.ScalePhase // empty if nothing
	round  uint64
	window uint64
	scaled bool // it is one of the operator that is to have another number of workers
}

// wantedOf is what the record of a job wants of the workers of an operator.
func wantedOf(record *cluster.Job, operator string) scaling {
	s := record.Scaling
	if s == nil || s.Phase.Over() {
		return scaling{}
	}
	w := scaling{phase: s.Phase, round: s.Round, window: s.Window, scaled: s.Operator == operator}
	if w.phase == cluster.ScaleFreeze {
		w.phase = cluster.ScalePause // it stays at rest
	}
	return w
}

// hold has an incarnation come to rest, or go on, as its record says. One that is loading does it when it runs (loaded).
func (h *host) hold(record *cluster.Job, c *incarnation) {
	before := c.scaling
	c.scaling = wantedOf(record, c.place.operator)
	if c.w == nil || c.scaling == c.heeded {
		if c.scaling != before {
			h.changed = true // whoever waits for an answer gets one
		}
		return
	}
	switch {
	case c.scaling.phase == cluster.ScaleHold:
		c.w.Hold(c.scaling.round)
	case c.scaling.phase == cluster.ScalePause:
		c.w.Pause(c.scaling.round, c.scaling.window)
	case c.heeded.phase.Holds():
		c.w.Resume()
	}
	c.heeded, h.changed = c.scaling, true
}

// rest says how far an incarnation is with what the record wants; nil if that wants nothing, or it does not run.
func (c *incarnation) rest() *cluster.Rest {
	if c.w == nil || c.scaling.phase == "" {
		return nil
	}
	r := &cluster.Rest{Round: c.scaling.round, Settled: c.w.Settled()}
	r.Held, r.Window = c.w.Held()
	var cannot error
	r.Paused, cannot = c.w.Paused()
	if c.scaling.scaled {
		cannot = errors.Join(c.w.Scalable(), cannot)
	}
	if cannot = errors.Join(c.w.Pausable(), cannot); cannot != nil && (c.scaling.phase == cluster.ScaleAsked || c.scaling.phase.Holds()) {
		r.Cannot = firstLine(cannot)
	}
	return r
}
