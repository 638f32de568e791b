package backup

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// pieceBytes is the most element bytes one record holds. Larger commits take several records, so that no batch
	// comes near MaxBatchBytes and restoring needs memory for a few pieces only.
	pieceBytes = 256 << 10

	// maxStepBytes is the most that everything of a commit but its elements may take.
	maxStepBytes = 256 << 10

	// minWholeBytes is how many bytes of deltas are always accepted before a new base is asked for: below it, replaying
	// deltas costs nothing worth a whole commit.
	minWholeBytes = 1 << 20
)

var (
	// ErrBusy is returned by Commit while another commit of the same partition is in flight.
	ErrBusy = errors.New("backup: a commit is in flight already")

	// ErrNotLoaded is returned by every use of a partition before Load.
	ErrNotLoaded = errors.New("backup: partition was not loaded")

	// ErrInput is returned by Commit when one channel is given twice.
	ErrInput = errors.New("backup: input channel given twice")
)

// Position is how far one input channel was processed: all items of epochs before Epoch, and the first Seq items of
// Epoch. Seq is thus the sequence of the first item not processed, and the zero Position is that of a channel of which
// nothing was. Positions compare as (Epoch, Seq), never as Seq alone, because a sender that starts a new epoch starts
// again at sequence 0.
type Position struct{ Epoch, Seq uint64 }

// Less reports whether p is before q.
func (p Position) Less(q Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq
}

// Input is the processed position of one input channel.
type Input struct {
	Channel uint64
	Position
}

// Commit is one durable step of one partition's state: what the state became, and how far every input had to be
// processed for it to become so.
type Commit struct {
	// Whole says that Elements hold the complete state. Otherwise they hold the elements that changed since the commit
	// before, or since the initial state if there is none.
	Whole bool
	// Elements is the encoded state, opaque here. It may be empty: the commit of a position alone.
	Elements []byte
	// Lent says that Elements stay as they are until done is called, so that no copy of a large state is made.
	Lent bool
	// Inputs are the processed positions of all input channels in any order, none twice. They replace those of the
	// commit before, they are not merged with them.
	Inputs []Input
	// Outputs are the next output sequences per output channel, by channel ordinal. May be empty.
	Outputs []uint64
	// Source is the source's position, opaque here. May be empty.
	Source []byte
	// Closing is the number of the punctuation whose close starts from this commit; 0 for none.
	Closing uint64
}

// Partition writes and reads the state and the item log of one partition.
//
// State is kept in generations. A generation is a base, the complete state in chunks, which a manifest written last
// makes valid, and delta records on top of it: a partial commit appends one delta, that is one key in one batch,
// however many elements it has. When the deltas outweigh the base NeedWhole asks for a whole commit, which starts the
// next generation. The generation before the newest is kept as the fallback, older ones are deleted a few keys with
// each commit, so that no commit pays for a large clean-up.
//
// Load comes first. Then one commit may be in flight at a time, while AppendLog may be called at any time from any
// goroutine. A Partition holds no goroutine and needs no closing.
//
// Invariants, kept through every crash and every refused write:
//
//	P1 A manifest is visible only while all chunks it names are.
//	P2 A delta record is replayed only if all before it in its generation are there and none was written in a later epoch.
//	P3 A log entry is deleted only after a commit that covers it is durable.
//	P4 A generation is deleted only when two newer ones are complete.
type Partition struct {
	store  Store
	key    PartitionKey
	owner  string
	epoch  uint64
	prefix []byte

	needWhole atomic.Bool

	mu        sync.Mutex // guards what follows; held for moments only, never while calling the store
	loaded    bool
	busy      bool // a commit or Load is under way and owns current, previous, deltaBytes, attempted and trash
	committed []Input
	log       itemLog

	current    generation // number 0: there is none yet
	previous   generation
	highest    uint64 // highest generation number that ever had a manifest
	deltaBytes uint64
	attempted  uint64 // chunks of generation highest+1 that failed whole commits may have left behind
	trash      trash
	writer     commitWriter

	markRecord []byte // of whoever calls Mark
}

// generation is how much of a generation exists: chunks [0, chunks) and delta records [0, deltas).
type generation struct {
	number, chunks, deltas uint64
	tried                  uint64 // failed commits may have left delta records up to here
	bytes                  uint64 // element bytes of the base
}

// OpenPartition returns the partition of key as its owner in the given epoch. It touches nothing: an invalid key is
// reported by Load and by everything else that is tried with it.
func OpenPartition(s Store, key PartitionKey, epoch uint64) *Partition {
	p := &Partition{store: s, key: key, owner: key.Owner(), epoch: epoch, prefix: key.prefix()}
	p.writer.init(p)
	return p
}

// NeedWhole reports that the next commit should be Whole: the deltas take more than twice the base and 1 MiB, so that
// replaying them would cost more than a new base, or Load had to skip something damaged. It is advice; a partial commit
// stays possible.
func (p *Partition) NeedWhole() bool { return p.needWhole.Load() }

// Commit makes c durable and calls done exactly once with the outcome, maybe from another goroutine and maybe before it
// returns. c and its slices, but for Elements that are Lent, may be used again as soon as Commit returns. One commit may be in flight at a time, another
// one gets ErrBusy; done may start the next. After an error nothing of c counts: the commit before is still the newest,
// unless the store failed after it had written, in which case c may be found by a later Load.
//
// Cost: one put and at most 1024 deletes in one batch; an additional batch for each 256 KiB of elements beyond the
// first. No allocation in steady state, and a copy of Elements beyond 256 KiB until done, unless they are Lent.
//
// Errors: ErrBusy, ErrNotLoaded, ErrInput, ErrTooLarge if all but the elements exceeds 256 KiB, and those of
// Store.Apply, of which ErrFenced means that another worker has taken over.
func (p *Partition) Commit(c *Commit, done func(error)) {
	if err := p.begin(); err != nil {
		done(fmt.Errorf("commit %s: %w", p.owner, err))
		return
	}
	if err := p.writer.start(c, done); err != nil {
		p.mu.Lock()
		p.busy = false
		p.mu.Unlock()
		done(fmt.Errorf("commit %s: %w", p.owner, err))
		return
	}
	p.writer.next()
}

// begin takes what the busy flag protects.
func (p *Partition) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.loaded:
		return ErrNotLoaded
	case p.busy:
		return ErrBusy
	}
	p.busy = true
	return nil
}

// finish records the outcome of the commit that the writer carried out and lets the next one begin.
func (p *Partition) finish(w *commitWriter, err error) {
	done := w.done
	w.done = nil
	p.mu.Lock()
	switch {
	case err != nil && w.whole:
		p.attempted = max(p.attempted, w.n)
	case err != nil:
		p.current.tried = max(p.current.tried, w.n)
	case w.whole:
		p.startGeneration(w)
	default:
		p.current.deltas = w.n
		p.deltaBytes += uint64(w.total)
	}
	if err == nil {
		p.committed = append(p.committed[:0], w.step.inputs...)
		p.log.sweep(p.committed, &p.trash)
		p.needWhole.Store(p.heavy())
	}
	p.busy = false
	p.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("commit %s: %w", p.owner, err)
	}
	done(err)
}

// deltaRecordBytes is what a delta record costs beside its elements: keys, positions, and its share of a scan.
const deltaRecordBytes = 128

// heavy says whether the deltas since the base are worth a new one. Their number counts as well as their size: commits of
// positions alone hold no element.
func (p *Partition) heavy() bool {
	return max(p.deltaBytes, deltaRecordBytes*p.current.deltas) > max(minWholeBytes, 2*p.current.bytes)
}

// startGeneration makes the base that w has written the newest and gives up the one before the previous.
func (p *Partition) startGeneration(w *commitWriter) {
	p.discard(p.previous)
	if p.attempted > w.n {
		p.trash.add(kindChunk, w.generation, w.n, p.attempted)
	}
	p.previous = p.current
	p.current = generation{number: w.generation, chunks: w.n, bytes: uint64(w.total)}
	p.highest, p.deltaBytes, p.attempted = w.generation, 0, 0
}

// discard leaves a generation to be deleted with later commits, its manifest last: as long as it is there, a Load after
// a crash knows that something remains to be deleted.
func (p *Partition) discard(g generation) {
	if g.number == 0 {
		return
	}
	p.trash.add(kindDelta, g.number, 0, max(g.deltas, g.tried))
	p.trash.add(kindChunk, g.number, 0, g.chunks)
	p.trash.add(kindManifest, 0, g.number, g.number+1)
}

// covers reports whether everything before the position end of a channel was processed.
func covers(inputs []Input, channel uint64, end Position) bool {
	i, ok := slices.BinarySearchFunc(inputs, channel, compareChannel)
	return ok && !inputs[i].Less(end)
}

func compareChannel(in Input, channel uint64) int {
	switch {
	case in.Channel < channel:
		return -1
	case in.Channel > channel:
		return 1
	}
	return 0
}
