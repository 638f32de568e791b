package wordcount

import (
	"errors"
	"fmt"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/stream"
)

// ErrOptions is wrapped by the errors of Options.Validate.
var ErrOptions = errors.New("wordcount: invalid options")

// Boundaries says where words begin and end; see the package comment.
type Boundaries string

// Ways to cut a text into words.
const (
	Unicode Boundaries = "unicode" // Unicode Standard Annex 29; the zero Boundaries means the same
	Alnum   Boundaries = "alnum"   // runs of ASCII letters and digits, as of tr
	Letters Boundaries = "letters" // runs of ASCII letters, likewise
	Fields  Boundaries = "fields"  // runs of anything but white space, as of awk
)

// DefaultBlockSize is what 0 stands for in Options.BlockSize.
const DefaultBlockSize = 256

// Options describe a job. All operators of it must be given the same. The zero value counts Unicode words as they are
// written, and emits all of them.
type Options struct {
	// Boundaries says what a word is; empty is Unicode.
	Boundaries Boundaries

	// Fold makes words that differ only in case the same.
	Fold bool

	// BlockSize is the most bytes that a block may have, connector.MinBlockSize to connector.MaxBlockSize; 0 is
	// DefaultBlockSize. Half of it is alpha: small blocks cost a few nanoseconds each, large ones need a large theta.
	BlockSize int

	// Norm is errorbound.Max, the default, or errorbound.L1.
	Norm errorbound.Norm

	// Top is how many of the most frequent words are emitted; 0 is all.
	Top int
}

// Validate returns all faults of o, joined, each wrapping ErrOptions.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	switch o.Boundaries {
	case "", Unicode, Alnum, Letters, Fields:
	default:
		check(false, "boundaries %q, want %q, %q, %q or %q", o.Boundaries, Unicode, Alnum, Letters, Fields)
	}
	check(o.BlockSize == 0 || o.BlockSize >= connector.MinBlockSize && o.BlockSize <= connector.MaxBlockSize,
		"block size %d, want %d to %d", o.BlockSize, connector.MinBlockSize, connector.MaxBlockSize)
	check(o.Norm == errorbound.Max || o.Norm == errorbound.L1, "norm %v, want max or l1", o.Norm)
	check(o.Top >= 0, "top %d, want 0 for all words or a number of words", o.Top)
	return errors.Join(faults...)
}

// mustBeValid panics if o is not valid.
func (o Options) mustBeValid() {
	if err := o.Validate(); err != nil {
		panic(err)
	}
}

func (o Options) blockSize() int {
	if o.BlockSize == 0 {
		return DefaultBlockSize
	}
	return o.BlockSize
}

// Alpha returns how many words one block can hold, and how often one block can hold the same word.
func (o Options) Alpha() float64 { return float64((o.blockSize() + 1) / 2) }

// Blocks returns the options of connector.Blocks that suit o.
func Blocks(path string, o Options) connector.BlockOptions {
	return connector.BlockOptions{Path: path, Size: o.blockSize(), Cut: connector.CutBlanks}
}

// Bound returns the most by which the counts that Assemble yields can differ, in the norm of o, from those without
// failures, after any number of failures within p: Theta + L*alpha, and Theta alone where the source can be read again.
// Under Max it bounds the error of every single word, under L1 the sum of all errors. Counts are never too high.
func Bound(p errorbound.Params, o Options) float64 { return p.StateBound(o.Alpha()) }

// BoundSplit is Bound for AssembleSplit. A word is lost with the state of a Tally, before it reaches one, or with a
// block that Split had not processed; or it is counted twice, when Split processes a block again:
// Theta + L + Gamma + L*alpha. To that comes the overdraft of Gamma, see errorbound.Params.Overdraft, and that of L: a
// Split needs at least one block between two backups, which once L is spent costs alpha more for each failure.
func BoundSplit(p errorbound.Params, o Options) float64 {
	return p.StateBound(1) + p.LossBound(o.Alpha())
}

// Workers is how many workers run each operator; 0 is 1. Each is a unit of failure.
type Workers struct {
	Split, Count, Merge int
	Compute             int // goroutines of each worker of Split and Count
}

func workers(n int) stream.Option { return stream.Workers(max(n, 1)) }

// Assemble adds operators count, merge and, if o.Top > 0 and w.Merge > 1, top to the topology of in. Rows come in the
// order of their ranks; with w.Merge > 1 and o.Top = 0 those of each partition do, among its own words. It panics if
// o is not valid.
func Assemble(in stream.Stream[connector.Block], o Options, w Workers) stream.Stream[Row] {
	o.mustBeValid()
	counts := stream.Then(in, "count", func() *Count { return NewCount(o) },
		stream.Shuffle(), workers(w.Count), stream.Compute(max(w.Compute, 1)), stream.EmitOnClose())
	return assembleMerge(counts, o, w)
}

// AssembleSplit is Assemble with operators split and tally in place of count.
func AssembleSplit(in stream.Stream[connector.Block], o Options, w Workers) stream.Stream[Row] {
	o.mustBeValid()
	compute := stream.Compute(max(w.Compute, 1))
	words := stream.Then(in, "split", func() *Split { return NewSplit(o) }, stream.Shuffle(), workers(w.Split), compute)
	counts := stream.Then(words, "tally", func() *Tally { return NewTally(o) },
		stream.HashUint64(func(k connector.Keyed) uint64 { return k.Hash }), workers(w.Count), compute, stream.EmitOnClose())
	return assembleMerge(counts, o, w)
}

func assembleMerge(counts stream.Stream[Counts], o Options, w Workers) stream.Stream[Row] {
	rows := stream.Then(counts, "merge", func() *Merge { return NewMerge(o) }, ByShard(), workers(w.Merge), stream.EmitOnClose())
	if w.Merge <= 1 || o.Top == 0 {
		return rows
	}
	return stream.Then(rows, "top", func() *Top { return NewTop(o) }, stream.EmitOnClose())
}
