package heavyhitter

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// candidateKeyLen is the length of the key of a candidate's element: its hash and one byte, so that it differs in
// length from the keys of the counters.
const candidateKeyLen = 9

func candidateKey(hash uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(make([]byte, 0, candidateKeyLen), hash), 'c')
}

// SetTheta implements stream.Thresholder.
func (s *Sketch) SetTheta(theta float64) {
	s.counts.SetTheta(theta)
	s.margin = 0
	switch { // see "Candidates and failures" in the package comment
	case math.IsInf(theta, 1):
	case s.options.Compensate:
		s.margin = math.Inf(1) // half the bar
	default:
		s.margin = theta + s.options.Alpha
	}
}

// StateDivergence implements stream.StateDivergence: an upper bound of the largest difference of a counter since the
// last durable backup, in constant time. New candidates do not count; see the package comment.
func (s *Sketch) StateDivergence() float64 { return s.counts.StateDivergence() }

// Measure implements stream.Measurer.
func (s *Sketch) Measure() stream.Measure { return s.counts.Measure() }

// Compensate implements stream.Compensator, if Options.Compensate is set; otherwise it does nothing.
func (s *Sketch) Compensate(theta float64, lost uint64) {
	if s.options.Compensate {
		s.counts.Compensate(theta, lost)
	}
}

// BackupState implements stream.BackupState: the counters as state.Counters does it, and the candidates that are new
// or, in a whole backup, all of them.
func (s *Sketch) BackupState(w *stream.StateWriter) error {
	if err := s.counts.BackupState(w); err != nil {
		return err
	}
	return s.candidates.backup(w)
}

// BackupDurable implements stream.BackupDurable.
func (s *Sketch) BackupDurable() {
	s.counts.BackupDurable()
	s.candidates.backupDurable()
}

// RestoreState implements stream.RestoreState.
func (s *Sketch) RestoreState(r *stream.StateReader) error {
	keys := map[uint64]connector.Key{}
	err := s.counts.RestoreWith(r, func(r *stream.StateReader) error { return restoreCandidate(r, keys) })
	if err != nil {
		return err
	}
	for _, k := range sortedCandidates(keys) {
		if s.candidates.full() { // a backup of a job with a smaller threshold
			s.candidates.prune(s.admission(), s.counts.Estimate)
		}
		s.candidates.add(k, durable)
	}
	return nil
}

// MergeState implements stream.MergeState: counters are added up, and a key that was a candidate in either partition is
// one. A key of Threshold of the sum of both totals has that share of its total in one of them, and was a candidate
// there.
func (s *Sketch) MergeState(r *stream.StateReader) error {
	keys := map[uint64]connector.Key{}
	err := s.counts.AddStateWith(r, func(r *stream.StateReader) error { return restoreCandidate(r, keys) })
	if err != nil {
		return err
	}
	for _, k := range sortedCandidates(keys) {
		if s.candidates.has(k.Hash) {
			continue
		}
		if s.candidates.full() {
			s.candidates.prune(s.admission(), s.counts.Estimate)
		}
		s.candidates.add(k, fresh)
	}
	return nil
}

func restoreCandidate(r *stream.StateReader, keys map[uint64]connector.Key) error {
	k := r.Key()
	if len(k) != candidateKeyLen || k[8] != 'c' {
		return fmt.Errorf("%w: unknown element %q", stream.ErrState, k)
	}
	hash := binary.LittleEndian.Uint64(k)
	if r.Deleted() {
		delete(keys, hash)
		return nil
	}
	var key connector.Key
	if err := key.UnmarshalBinary(r.Value()); err != nil {
		return fmt.Errorf("%w: candidate: %w", stream.ErrState, err)
	}
	keys[hash] = key
	return nil
}

// backup writes all candidates, or those that the backups do not hold yet. Deletions come first: a candidate that
// went and came back is written after the deletion of its old element.
func (c *candidates) backup(w *stream.StateWriter) error {
	c.goneInFlight = len(c.gone)
	if !w.Whole() {
		for _, hash := range c.gone {
			w.Delete(candidateKey(hash))
		}
	}
	var value []byte
	for i := range c.list {
		k := &c.list[i]
		if !w.Whole() && k.saved == durable {
			continue
		}
		var err error
		if value, err = k.Key.AppendBinary(value[:0]); err != nil {
			return fmt.Errorf("back up candidate %q: %w", k.Key, err)
		}
		w.Put(candidateKey(k.Hash), value)
		if k.saved == fresh {
			k.saved = inFlight
		}
	}
	return nil
}

func (c *candidates) backupDurable() {
	c.gone = append(c.gone[:0], c.gone[c.goneInFlight:]...)
	c.goneInFlight = 0
	for i := range c.list {
		if c.list[i].saved == inFlight {
			c.list[i].saved = durable
		}
	}
}
