package backup

import (
	"fmt"
	"hash/crc32"
	"slices"
)

// keepBuffer is the largest buffer kept for the next commit; larger ones are rare and go back to the collector.
const keepBuffer = 1 << 20

// commitWriter carries out one commit as a chain of batches, each applied when the one before is durable: the record
// that makes a commit valid must never be durable before the rest of it. It belongs to the goroutine that set
// Partition.busy, and passes from batch to batch with the store's done callback.
type commitWriter struct {
	p         *Partition
	done      func(error)
	onApplied func(error) // w.applied, bound once: a method value would be allocated for each batch

	whole      bool
	generation uint64
	first, n   uint64 // numbers of the commit's first and of the next record, chunk or delta
	step       step
	elements   []byte // what is not written yet
	total      int    // element bytes of the commit
	sum        uint32 // of all element bytes of a whole commit

	large   []byte // copy of elements that take several batches
	buf     []byte // keys and records of the batch in flight
	batch   Batch
	puts    [2]Entry
	deletes [][]byte
	taken   int  // how much of the trash the batch in flight deletes
	last    bool // the batch in flight completes the commit
}

func (w *commitWriter) init(p *Partition) {
	w.p = p
	w.onApplied = w.applied
	w.batch.Owner, w.batch.Epoch = p.owner, p.epoch
	w.step.epoch = p.epoch
}

// start takes over what c holds.
func (w *commitWriter) start(c *Commit, done func(error)) error {
	if n := 30*len(c.Inputs) + 10*len(c.Outputs) + len(c.Source); n > maxStepBytes {
		return fmt.Errorf("%d inputs, %d outputs, %d bytes of source position: %w",
			len(c.Inputs), len(c.Outputs), len(c.Source), ErrTooLarge)
	}
	s := &w.step
	s.inputs = append(s.inputs[:0], c.Inputs...)
	slices.SortFunc(s.inputs, func(a, b Input) int { return compareChannel(a, b.Channel) })
	for i := 1; i < len(s.inputs); i++ {
		if s.inputs[i].Channel == s.inputs[i-1].Channel {
			return fmt.Errorf("channel %d: %w", s.inputs[i].Channel, ErrInput)
		}
	}
	s.outputs = append(s.outputs[:0], c.Outputs...)
	s.source = append(s.source[:0], c.Source...)
	s.closing = c.Closing

	w.done = done
	// Without a generation there is no base to put a delta on. What changed since the initial state, on top of that
	// state, is all there is: it becomes the base.
	w.whole = c.Whole || w.p.current.number == 0
	if w.whole {
		w.generation, w.first = w.p.highest+1, 0
		w.sum = crc32.Checksum(c.Elements, castagnoli)
	} else {
		w.generation, w.first = w.p.current.number, w.p.current.deltas
	}
	w.n = w.first
	w.total = len(c.Elements)
	w.elements = c.Elements
	if len(c.Elements) > pieceBytes && !c.Lent {
		w.large = append(w.large[:0], c.Elements...)
		w.elements = w.large
	}
	return nil
}

// next applies the next batch. Large commits to a store that calls done at once recurse here, once for each 256 KiB.
func (w *commitWriter) next() {
	piece := w.elements[:min(len(w.elements), pieceBytes)]
	w.elements = w.elements[len(piece):]
	w.last = len(w.elements) == 0
	w.buf, w.deletes = w.buf[:0], w.deletes[:0]
	w.batch.Puts = w.puts[:0]
	if w.whole {
		w.putChunk(piece)
	} else {
		w.put(kindDelta, w.n, func(dst []byte) []byte {
			return appendDelta(dst, &delta{
				generation: w.generation, n: w.n, first: w.first, final: w.last, step: w.step, data: piece,
			})
		})
		w.n++
	}
	w.taken, w.buf, w.deletes = w.p.trash.take(w.p.prefix, w.buf, w.deletes)
	w.batch.Deletes = w.deletes
	if w.last {
		w.elements = nil // may be the caller's
	}
	w.p.store.Apply(&w.batch, w.onApplied)
}

// putChunk adds the next chunk of a base and, with the last one, its manifest.
func (w *commitWriter) putChunk(piece []byte) {
	if w.n == 0 && !w.last {
		// A whole commit that was reported as failed may be there nevertheless: its manifest goes before its chunks
		// are overwritten (P1).
		at := len(w.buf)
		w.buf = appendKey(w.buf, w.p.prefix, kindManifest, w.generation)
		w.deletes = append(w.deletes, w.buf[at:len(w.buf):len(w.buf)])
	}
	if len(piece) > 0 {
		w.put(kindChunk, w.n, func(dst []byte) []byte { return appendChunk(dst, w.generation, w.n, piece) })
		w.n++
	}
	if !w.last {
		return
	}
	w.put(kindManifest, 0, func(dst []byte) []byte {
		return appendManifest(dst, &manifest{
			generation: w.generation, chunks: w.n, bytes: uint64(w.total), sum: w.sum,
			previous: w.p.current.number, previousDeltas: max(w.p.current.deltas, w.p.current.tried), step: w.step,
		})
	})
}

// put adds the record that encode appends. Earlier slices of buf stay valid when it grows: they keep the old array.
func (w *commitWriter) put(kind byte, n uint64, encode func([]byte) []byte) {
	at := len(w.buf)
	if kind == kindManifest {
		w.buf = appendKey(w.buf, w.p.prefix, kind, w.generation)
	} else {
		w.buf = appendKey(w.buf, w.p.prefix, kind, w.generation, n)
	}
	mid := len(w.buf)
	w.buf = encode(w.buf)
	w.batch.Puts = append(w.batch.Puts, Entry{Key: w.buf[at:mid:mid], Value: w.buf[mid:len(w.buf):len(w.buf)]})
}

// applied follows each batch.
func (w *commitWriter) applied(err error) {
	if err == nil {
		w.p.trash.drop(w.taken)
		if !w.last {
			w.next()
			return
		}
	}
	w.elements = nil
	if cap(w.large) > keepBuffer {
		w.large = nil
	}
	w.p.finish(w, err)
}
