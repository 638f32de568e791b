package controller

import "github.com/afstream/afstream/worker"

// hint says, once for each operator, that its thresholds have become so small that every item waits for a backup of its
// own, which is hundreds of times slower, and which Theta would do. Who asks for that, by a Theta of 0 or the guarantee, is
// told nothing.
func (r *run) hint(s *slot) {
	theta, alpha := s.loaded.Budget().Theta, s.loaded.Alpha()
	if r.o.Guarantee != worker.Approximate || !(theta > 0 && alpha > theta) || r.hinted[s.node] {
		return
	}
	r.hinted[s.node] = true
	r.o.Log.Warn("every item is backed up: one may change the state by more than the theta of a partition; raise Theta (--theta)",
		"operator", s.node.Name, "epoch", s.epoch, "alpha", alpha, "partition_theta", theta, "Theta_above", r.o.Theta*(alpha/theta))
}
