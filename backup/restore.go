package backup

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// Restored is what Load found: the newest commit that can be restored.
type Restored struct {
	// Found is false if nothing was ever committed, or nothing of it can be read; then only Damaged has a meaning.
	Found bool
	// Epoch is the epoch of the worker that wrote the commit.
	Epoch uint64
	// Outputs, Source and Closing are those of the commit. Inputs are, too, or those of a later mark (Partition.Mark), sorted
	// by channel. ScanLog goes by the commit: what is before Inputs is to be skipped.
	Inputs  []Input
	Outputs []uint64
	Source  []byte
	Closing uint64
	// Bytes is how many element bytes Chunks will deliver, for reporting progress.
	Bytes int64
	// Damaged names what had to be skipped, each wrapping ErrDamaged. If it is not empty, the state, or of a damaged mark the
	// positions, are older than what was acknowledged last.
	Damaged []error

	chunks chunks
}

// Chunks delivers the elements: first the base, then each delta in the order of its commit. It returns io.EOF at the end,
// and keeps returning an error once it has. It needs memory for about 1 MiB, and a scan of the store is under way from
// the first call until an error is returned, or Stop is called. Use it before the first commit, and from one goroutine at a time.
func (r *Restored) Chunks() (Chunk, error) { return r.chunks.read() }

// Stop ends the reading of the elements before their end. It may be called at any time, and again.
func (r *Restored) Stop() { r.chunks.end() }

// Chunk is a part of the elements of one commit.
type Chunk struct {
	Data  []byte // valid until the next call of Chunks
	Whole bool   // of the complete state, otherwise of changed elements
	End   bool   // the last chunk of its commit; a commit may be cut into chunks anywhere
}

// Load makes this epoch the oldest that may write, finds the newest commit that is complete, deletes what would be in
// the way of the commits to follow, and makes the partition ready for use. With nothing stored it is a normal start:
// Found is false and the error nil.
//
// A generation that is incomplete or damaged is skipped, and a damaged delta ends its generation at the delta before;
// both are named in Damaged. Load reads the state once to check it, Chunks reads it again to deliver it, so that an
// operator never sees a part of something that turns out to be damaged further on.
//
// Errors: ErrFenced if a newer epoch took over, ErrName, ErrBusy, ErrClosed, or what the disk reported.
func (p *Partition) Load() (*Restored, error) {
	r, err := p.load()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", p.owner, err)
	}
	return r, nil
}

func (p *Partition) load() (*Restored, error) {
	if err := p.key.check(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.busy {
		p.mu.Unlock()
		return nil, ErrBusy
	}
	p.busy, p.loaded = true, false
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.busy = false
		p.mu.Unlock()
	}()

	if err := p.store.Fence(p.owner, p.epoch); err != nil {
		return nil, err
	}
	var f finder
	var log itemLog
	err := repeat(func() (err error) {
		f = finder{p: p, restored: &Restored{chunks: chunks{err: io.EOF}}}
		if err = f.find(); err == nil {
			err = f.readMark()
		}
		if err == nil {
			log, err = f.readLog()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := repeat(f.clean); err != nil {
		return nil, err
	}
	p.adopt(&f, log)
	return f.restored, nil
}

// maxRepeats bounds repeat: a store that starts again each time it is read will not get better.
const maxRepeats = 5

// repeat calls read, which begins anew each time, until no start of the store interrupts it. The partition is fenced, so
// that nobody else changes what is read in between.
func repeat(read func() error) error {
	for n := 0; ; n++ {
		if err := read(); !errors.Is(err, ErrInterrupted) || n == maxRepeats {
			return err
		}
	}
}

// adopt makes what f found the partition's state.
func (p *Partition) adopt(f *finder, log itemLog) {
	r := f.restored
	p.current, p.previous = f.current, f.previous
	p.highest, p.attempted, p.trash = f.current.number, 0, trash{} // clean has deleted all generations beyond
	p.deltaBytes = f.deltaBytes
	p.needWhole.Store(len(r.Damaged) > 0 || p.heavy())
	p.mu.Lock()
	p.committed = append(p.committed[:0], f.step.inputs...)
	p.log = log
	p.log.sweep(p.committed, &p.trash)
	p.loaded = true
	p.mu.Unlock()
}

// errStop ends a scan that has seen enough.
var errStop = errors.New("stop")

// finder is one run of Load.
type finder struct {
	p         *Partition
	restored  *Restored
	manifests []manifest // readable ones, oldest first
	unusable  []uint64   // generations whose manifest cannot be read
	highest   uint64     // generation with a manifest, readable or not
	junk      [][]byte   // keys that no writer could have made, and unreadable log entries

	current, previous generation
	step              step   // of the newest commit
	deltaBytes        uint64 // element bytes of its generation's deltas
	stale             bool   // delta records beyond the last good one exist
}

// find looks for the newest generation whose base is complete.
func (f *finder) find() error {
	if err := f.readManifests(); err != nil {
		return err
	}
	for i := len(f.manifests) - 1; i >= 0; i-- {
		m := &f.manifests[i]
		err := f.checkBase(m)
		if errors.Is(err, ErrDamaged) {
			f.restored.Damaged = append(f.restored.Damaged, fmt.Errorf("generation %d: %w", m.generation, err))
			continue
		}
		if err != nil {
			return err
		}
		f.current = generation{number: m.generation, chunks: m.chunks, bytes: m.bytes}
		f.step = m.step
		if err := f.replay(); err != nil {
			return err
		}
		if i > 0 {
			f.keep(m, &f.manifests[i-1])
		}
		f.fill()
		return nil
	}
	return nil
}

// keep retains the generation before the one found as its fallback.
func (f *finder) keep(m, before *manifest) {
	if m.previous == before.generation {
		f.previous = generation{
			number: before.generation, chunks: before.chunks, deltas: m.previousDeltas, bytes: before.bytes,
		}
	}
}

// fill completes what Load returns.
func (f *finder) fill() {
	r, s := f.restored, &f.step
	r.Found, r.Epoch, r.Closing = true, s.epoch, s.closing
	r.Inputs = append([]Input(nil), s.inputs...)
	r.Outputs = append([]uint64(nil), s.outputs...)
	r.Source = append([]byte(nil), s.source...)
	r.Bytes = int64(f.current.bytes + f.deltaBytes)
	r.chunks = chunks{p: f.p, g: f.current}
}

func (f *finder) readManifests() error {
	prefix := appendKey(nil, f.p.prefix, kindManifest)
	return f.p.store.Scan(prefix, func(key, value []byte) error {
		n, ok := lastNumber(key, len(prefix))
		if !ok || n == 0 {
			f.malformed(key)
			return nil
		}
		f.highest = n
		var m manifest
		if why := decodeManifest(value, n, &m); why != "" {
			f.restored.Damaged = append(f.restored.Damaged, fmt.Errorf("generation %d: %w", n, damaged(key, why)))
			f.unusable = append(f.unusable, n)
			return nil
		}
		f.manifests = append(f.manifests, m)
		return nil
	})
}

// malformed takes note of a key that only damage can have made.
func (f *finder) malformed(key []byte) {
	f.restored.Damaged = append(f.restored.Damaged, damaged(key, "malformed key"))
	f.junk = append(f.junk, bytes.Clone(key))
}

// checkBase reads all chunks that m names.
func (f *finder) checkBase(m *manifest) error {
	prefix := appendKey(nil, f.p.prefix, kindChunk, m.generation)
	var next, size uint64
	var sum uint32
	err := f.p.store.Scan(prefix, func(key, value []byte) error {
		n, ok := lastNumber(key, len(prefix))
		switch {
		case next == m.chunks:
			return errStop
		case !ok:
			f.malformed(key)
			return nil
		case n != next:
			return damaged(appendKey(nil, f.p.prefix, kindChunk, m.generation, next), "missing")
		}
		data, why := decodeChunk(value, m.generation, n)
		if why != "" {
			return damaged(key, why)
		}
		sum = crc32.Update(sum, castagnoli, data)
		size += uint64(len(data))
		next++
		return nil
	})
	switch {
	case err != nil && err != errStop:
		return err
	case next != m.chunks:
		return damaged(appendKey(nil, f.p.prefix, kindChunk, m.generation, next), "missing")
	case size != m.bytes || sum != m.sum:
		return damaged(appendKey(nil, f.p.prefix, kindManifest, m.generation), "does not match its chunks")
	}
	return nil
}

// replay follows the deltas of the current generation to the newest commit.
func (f *finder) replay() error {
	g := &f.current
	prefix := appendKey(nil, f.p.prefix, kindDelta, g.number)
	var next, runBytes uint64 // the next record, and the bytes of the run so far that is not final yet
	var d delta
	err := f.p.store.Scan(prefix, func(key, value []byte) error {
		n, ok := lastNumber(key, len(prefix))
		if !ok {
			f.malformed(key)
			return nil
		}
		if n != next {
			missing := appendKey(nil, f.p.prefix, kindDelta, g.number, next)
			f.restored.Damaged = append(f.restored.Damaged, damaged(missing, "missing"))
			return errStop
		}
		if why := decodeDelta(value, g.number, n, &d); why != "" {
			f.restored.Damaged = append(f.restored.Damaged, damaged(key, why))
			return errStop
		}
		if d.first != g.deltas || d.step.epoch < f.step.epoch {
			return errStop // left over from a writer that was cut off here (P2)
		}
		next++
		runBytes += uint64(len(d.data))
		if d.final {
			g.deltas = next
			f.deltaBytes += runBytes
			runBytes = 0
			f.step, d.step = d.step, f.step // swapped, so that both keep slices of their own
		}
		return nil
	})
	f.stale = err == errStop || next != g.deltas
	if err == errStop {
		return nil
	}
	if errors.Is(err, ErrDamaged) { // the store itself cannot read on
		f.restored.Damaged = append(f.restored.Damaged, err)
		f.stale = true
		return nil
	}
	return err
}

// clean deletes what a later Load must not find or what nobody would ever delete: deltas beyond the newest commit,
// generations that are damaged or were being deleted, and the chunks of a base that was never completed.
func (f *finder) clean() error {
	if f.stale {
		from := f.current.deltas
		prefix := appendKey(nil, f.p.prefix, kindDelta, f.current.number)
		err := deleteKeys(f.p.store, f.p.owner, f.p.epoch, prefix, func(key []byte) bool {
			n, ok := lastNumber(key, len(prefix))
			return !ok || n >= from
		})
		if err != nil {
			return err
		}
	}
	for junk := range slices.Chunk(f.junk, deleteBatch) {
		if err := applyWait(f.p.store, &Batch{Owner: f.p.owner, Epoch: f.p.epoch, Deletes: junk}); err != nil {
			return err
		}
	}
	drop := append([]uint64(nil), f.unusable...)
	for i := range f.manifests {
		if n := f.manifests[i].generation; n != f.current.number && n != f.previous.number {
			drop = append(drop, n)
		}
	}
	// A base is written under the number that follows all others, so that is where an unfinished one is.
	drop = append(drop, f.highest+1)
	for _, n := range drop {
		for _, kind := range [...]byte{kindDelta, kindChunk, kindManifest} {
			if err := f.drop(kind, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *finder) drop(kind byte, generation uint64) error {
	return deleteKeys(f.p.store, f.p.owner, f.p.epoch, appendKey(nil, f.p.prefix, kind, generation), nil)
}

// readLog lists the entries of the item log.
func (f *finder) readLog() (itemLog, error) {
	var l itemLog
	err := f.p.scanLog(func(key []byte, n uint64, e *LogEntry, damage error) error {
		if damage == nil {
			l.add(n, e)
			return nil
		}
		f.restored.Damaged = append(f.restored.Damaged, damage)
		f.junk = append(f.junk, bytes.Clone(key))
		return nil
	})
	return l, err
}
