package backup

import "fmt"

// MaxNoteBytes is the most that the notes of one batch may be, counted as [Batch.Size] counts.
const MaxNoteBytes = 48 << 10

// Noting is what a [Store] can do for a server that applies batches for others, beside keeping them. Stores of
// [OpenBadger] and [NewMemory] have it.
//
// A note is a value that becomes durable in the same atom as a batch, so that a server which was killed finds out
// afterwards which batches it had applied. Notes have keys of their own, which Scan does not see, and count neither
// against the limits of the batch nor as writes of its owner.
type Noting interface {
	Store

	// ApplyNoted is Apply that also stores notes, all or nothing together with b. A note without a value is deleted.
	// notes belong to the store until done is called. ErrTooLarge is returned as well for more than MaxNoteBytes, and
	// ErrKey for the keys of notes as it is for those of puts.
	ApplyNoted(b *Batch, notes []Entry, done func(error))

	// Notes calls fn for each note in the order of their keys, as Scan does for keys.
	Notes(fn func(key, value []byte) error) error
}

func notesSize(notes []Entry) int {
	n := entryOverhead * len(notes)
	for i := range notes {
		n += len(notes[i].Key) + len(notes[i].Value)
	}
	return n
}

func checkNotes(notes []Entry) error {
	if n := notesSize(notes); n > MaxNoteBytes {
		return fmt.Errorf("notes of %d bytes, at most %d: %w", n, MaxNoteBytes, ErrTooLarge)
	}
	for i := range notes {
		if err := checkKey(notes[i].Key); err != nil {
			return err
		}
	}
	return nil
}

// CheckBatch reports why no store may accept b, whatever the state of that store: ErrName, ErrTooLarge or ErrKey.
func CheckBatch(b *Batch) error { return b.check() }

// CheckOwner reports, with ErrName, that owner is no valid [Batch.Owner].
func CheckOwner(owner string) error { return checkOwner(owner) }
