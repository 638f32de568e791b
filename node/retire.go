package node

import "time"

// This file holds how workers leave the node without loss, one by one as their records ask for it, or all since the process is
// to end. Where they go on is for the controller to say.

// obey has an incarnation retire, or go on, as its record says. One that is loading does it when it runs (loaded).
func (h *host) obey(c *incarnation, retire bool) {
	c.retire = retire
	switch {
	case c.w == nil || c.retire == c.asked:
	case retire:
		c.asked = true
		if c.cannot = c.w.Retire(); c.cannot != nil {
			c.log.Info("worker cannot move without loss", "err", oneLine(c.cannot))
			h.changed = true
		} else if c.w.UpstreamParker() == nil {
			c.cancel(errAssigned) // a source may be waiting for input
		}
	default:
		c.asked, c.cannot = false, nil
		c.w.CallOff() // if that comes too late it ends as Retired, and is assigned anew
	}
}

// leaveInOrder begins to end the process in order, and says whether there is anything to wait for.
func (h *host) leaveInOrder() bool {
	if h.o.Grace < 0 || h.unfinished() == 0 {
		return false
	}
	h.o.Log.Info("node is about to end: its workers are to move", "node", h.o.Name, "workers", h.unfinished(), "grace", h.o.Grace)
	h.leaving, h.changed = true, true
	return true
}

// unfinished counts the workers that are assigned to the node and have not finished the stream.
func (h *host) unfinished() int {
	n := 0
	for _, j := range h.jobs {
		for _, c := range j.workers {
			if !c.finished.Load() {
				n++
			}
		}
	}
	return n
}

// graceOver takes note that the process ends with workers that nobody has moved.
func (h *host) graceOver(after time.Duration) {
	h.o.Log.Warn("node ends with workers that were not moved, and are lost: is there another node with free slots, and a controller?",
		"node", h.o.Name, "workers", h.unfinished(), "after", after)
}
