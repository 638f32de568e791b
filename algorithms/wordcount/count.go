package wordcount

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrBlock is wrapped by the errors of Process and ProcessBatch about a block that is longer than Options.BlockSize:
// alpha would not hold.
var ErrBlock = errors.New("wordcount: block is too long")

// Count cuts blocks into words and counts them. It emits at the end of each window only, the counts of its partition in
// pieces, and must be built with stream.EmitOnClose; its input may be shuffled, or partitioned in any way.
//
// A word takes about as long as one count in a Go map; nothing is allocated but for new words.
type Count struct {
	counter
	cut  *cutter
	size int
}

// NewCount returns a Count of no words. It panics if o is not valid; see Options.Validate.
func NewCount(o Options) *Count {
	o.mustBeValid()
	c := &Count{cut: newCutter(o.Boundaries, o.Fold), size: o.blockSize()}
	c.counter = newCounter(o.Norm, o.Alpha(), errorbound.Added)
	return c
}

// Process implements stream.Operator. The error wraps ErrBlock.
func (c *Count) Process(in connector.Block, _ *stream.Emitter[Counts]) error {
	if err := checkBlock(&in, c.size); err != nil {
		return err
	}
	c.cut.reset(in.Text)
	for word := c.cut.next(); word != nil; word = c.cut.next() {
		c.words.add(word, 1)
	}
	return nil
}

// MergeState implements stream.MergeState. The error wraps stream.ErrState.
func (c *Count) MergeState(r *stream.StateReader) error { return c.words.mergeState(r) }

func checkBlock(b *connector.Block, size int) error {
	if len(b.Text) > size {
		return fmt.Errorf("%w: %d bytes at offset %d, want at most %d", ErrBlock, len(b.Text), b.Offset, size)
	}
	return nil
}

// Split cuts blocks into words and emits each as an item that weighs 1, in the order of the text. It has no state.
// A word of more than connector.MaxKeyLen bytes becomes a key as connector.Key tells.
type Split struct {
	cut   *cutter
	size  int
	alpha float64
}

// NewSplit returns a Split. It panics if o is not valid; see Options.Validate.
func NewSplit(o Options) *Split {
	o.mustBeValid()
	return &Split{cut: newCutter(o.Boundaries, o.Fold), size: o.blockSize(), alpha: o.Alpha()}
}

// Process implements stream.Operator. The error wraps ErrBlock.
func (s *Split) Process(in connector.Block, out *stream.Emitter[connector.Keyed]) error {
	if err := checkBlock(&in, s.size); err != nil {
		return err
	}
	s.cut.reset(in.Text)
	for word := s.cut.next(); word != nil; word = s.cut.next() {
		out.Emit(connector.MakeKeyed(word, 1))
	}
	return nil
}

// Measure implements stream.Measurer: no state, beta as many words as a block can hold.
func (s *Split) Measure() stream.Measure { return stream.Measure{Beta: s.alpha} }

// Tally counts words that come as items, whatever they weigh. It emits as Count does and must be built with
// stream.EmitOnClose. Its input must be partitioned by the hash of the word.
type Tally struct {
	counter
	word []byte
}

// NewTally returns a Tally of no words. It panics if o is not valid; see Options.Validate.
func NewTally(o Options) *Tally {
	o.mustBeValid()
	return &Tally{counter: newCounter(o.Norm, 1, errorbound.Disjoint)}
}

// Process implements stream.Operator. It never fails.
func (t *Tally) Process(in connector.Keyed, out *stream.Emitter[Counts]) error {
	return t.ProcessBatch([]connector.Keyed{in}, out)
}

// ProcessBatch implements stream.BatchOperator. It never fails.
func (t *Tally) ProcessBatch(in []connector.Keyed, _ *stream.Emitter[Counts]) error {
	for i := range in {
		t.word, _ = in[i].Key.AppendText(t.word[:0])
		if len(t.word) > 0 {
			t.words.add(t.word, 1)
		}
	}
	return nil
}

// PartitionOf implements stream.Keyed: the partition of words whose input is partitioned by stream.HashUint64 of Keyed.Hash.
func (t *Tally) PartitionOf(word []byte, n int) int {
	hash := xxhash.Sum64(word)
	if at := len(word) - shortenedHash; len(word) > connector.MaxKeyLen {
		// Of a shortened word the table knows what connector.Key shows, which ends in its hash.
		if b, err := hex.DecodeString(string(word[at:])); err == nil {
			hash = binary.BigEndian.Uint64(b)
		}
	}
	return stream.PartitionOfUint64(hash, n)
}

// shortenedHash is the length of the hash at the end of a shortened word.
const shortenedHash = 16

// counter is what Count and Tally have in common: the table, its fault tolerance and its emission.
type counter struct {
	words   *table
	measure stream.Measure
}

func newCounter(norm errorbound.Norm, alpha float64, combine errorbound.Combine) counter {
	return counter{words: newTable(norm, alpha), measure: stream.Measure{Alpha: alpha, Norm: norm, Combine: combine}}
}

// Total returns the number of words.
func (c *counter) Total() uint64 { return c.words.total }

// CloseWindow implements stream.WindowCloser: it emits the counts in pieces, the same for the same state, and, unless
// the stream ends, forgets them for the next window.
func (c *counter) CloseWindow(w stream.Window, out *stream.Emitter[Counts]) error {
	for piece := range c.words.pieces() {
		out.Emit(piece)
	}
	if !w.Last {
		c.words.reset()
	}
	return nil
}

// Measure implements stream.Measurer.
func (c *counter) Measure() stream.Measure { return c.measure }

// SetTheta implements stream.Thresholder, in time proportional to the number of different words.
func (c *counter) SetTheta(theta float64) { c.words.setTheta(theta) }

// StateDivergence implements stream.StateDivergence in constant time: exactly under L1; under Max an upper bound of the
// largest difference since the last durable backup, at most 1/32 theta above it once it is above 1/2 theta.
func (c *counter) StateDivergence() float64 { return c.words.divergence() }

// BackupState implements stream.BackupState. A partial backup writes, under Max, the words whose count has grown by
// more than 1/2 theta, under L1 all that have grown.
func (c *counter) BackupState(w *stream.StateWriter) error {
	c.words.backup(w)
	return nil
}

// BackupDurable implements stream.BackupDurable.
func (c *counter) BackupDurable() { c.words.backupDurable() }

// RestoreState implements stream.RestoreState. The error wraps stream.ErrState.
func (c *counter) RestoreState(r *stream.StateReader) error { return c.words.restore(r) }
