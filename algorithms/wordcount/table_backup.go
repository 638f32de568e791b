package wordcount

import (
	"encoding/binary"
	"fmt"

	"github.com/afstream/afstream/stream"
)

// backup writes all counts, or those that are due. The key of an element is the word, its value the count as a varint.
func (t *table) backup(w *stream.StateWriter) {
	f := &t.inFlight
	f.active, f.total = true, t.total
	f.complete = w.Whole() || t.stale || !t.tracked
	f.unstales = f.complete
	f.indexes, f.counts = f.indexes[:0], f.counts[:0]
	if !f.complete {
		for _, i := range t.due {
			f.indexes = append(f.indexes, i)
			f.counts = append(f.counts, t.write(w, i))
		}
		return
	}
	for i := range t.entries {
		f.counts = append(f.counts, t.write(w, uint32(i)))
	}
}

// write writes one count and returns it. A zero is no element: it is deleted where older backups may have one.
func (t *table) write(w *stream.StateWriter, i uint32) uint64 {
	count := t.entries[i].count
	switch {
	case count > 0:
		var value [binary.MaxVarintLen64]byte
		w.Put(t.word(i), value[:binary.PutUvarint(value[:], count)])
	case !w.Whole():
		w.Delete(t.word(i))
	}
	return count
}

// backupDurable takes note that what backup wrote last is durable. After a partial backup that takes time in
// proportion to the number of words that are due.
func (t *table) backupDurable() {
	f := &t.inFlight
	if !f.active {
		return
	}
	f.active = false
	if f.unstales {
		t.stale = false
	}
	if f.complete {
		for i, count := range f.counts {
			t.rest[i].durable = count
		}
		for i := range t.rest[len(f.counts):] {
			t.rest[len(f.counts)+i].durable = 0
		}
		t.covered = f.total
		t.compact()
		t.classify()
		return
	}
	for at, i := range f.indexes {
		t.rest[i].durable = f.counts[at]
	}
	if t.l1 { // all that had changed was written
		t.covered = f.total
	}
	left := t.due
	t.due, t.peak = t.due[:0], 0
	for _, i := range left { // attention appends to the same array, never beyond what has been read
		t.place(i)
	}
}

// restore reads what backup wrote.
func (t *table) restore(r *stream.StateReader) error {
	for r.Next() {
		word, count, err := element(r)
		if err != nil {
			return err
		}
		t.entries[t.find(word)].count = count
	}
	if err := r.Err(); err != nil {
		return err
	}
	t.total = 0
	for i := range t.entries {
		e := &t.entries[i]
		if e.count > maxTotal-t.total {
			return fmt.Errorf("%w: more than %d words", stream.ErrState, uint64(maxTotal))
		}
		t.total += e.count
		t.rest[i].durable = e.count
	}
	t.covered = t.total
	t.compact()
	t.classify()
	return nil
}

// element reads one count, 0 if it was deleted.
func element(r *stream.StateReader) (word []byte, count uint64, err error) {
	word = r.Key()
	if len(word) == 0 || len(word) >= 1<<lengthBits {
		return nil, 0, fmt.Errorf("%w: word of %d bytes", stream.ErrState, len(word))
	}
	if r.Deleted() {
		return word, 0, nil
	}
	count, ok := uvarint(r.Value())
	if !ok || count == 0 {
		return nil, 0, fmt.Errorf("%w: count %x of word %.40q", stream.ErrState, r.Value(), word)
	}
	return word, count, nil
}

// mergeState adds the counts that backup wrote for another table.
func (t *table) mergeState(r *stream.StateReader) error {
	for r.Next() {
		word, count, err := element(r)
		if err != nil {
			return err
		}
		if count > maxTotal-t.total {
			return fmt.Errorf("%w: more than %d words", stream.ErrState, uint64(maxTotal))
		}
		t.add(word, count)
	}
	return r.Err()
}

// maxTotal bounds what a backup or a piece of another table may claim, so that no sum can wrap around.
const maxTotal = 1 << 56
