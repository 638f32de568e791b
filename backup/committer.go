package backup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// kindFence marks the record of a fence.
const kindFence = 'f'

// request is one queued batch or, without a batch, the writing of a fence.
type request struct {
	batch *Batch
	notes []Entry
	owner string
	epoch uint64
	done  func(error)
}

// mayBeWritten says why r has to be refused on a disk that is full, or too full even for what makes room.
func (r *request) mayBeWritten(full, tooFull error) error {
	if full != nil && r.makesRoom() {
		return tooFull
	}
	return full
}

// makesRoom says whether r is needed to delete something and writes next to nothing itself: deletes, with the records that
// backup/copies puts beside them, notes, and the fences of what is to be deleted.
func (r *request) makesRoom() bool {
	if r.batch == nil {
		return r.epoch == math.MaxUint64
	}
	for i := range r.batch.Puts {
		if !bytes.HasPrefix(r.batch.Puts[i].Key, copyPrefix) {
			return false
		}
	}
	return true
}

func (s *badgerStore) Apply(b *Batch, done func(error)) { s.ApplyNoted(b, nil, done) }

func (s *badgerStore) ApplyNoted(b *Batch, notes []Entry, done func(error)) {
	err := errors.Join(b.check(), checkNotes(notes))
	if err == nil {
		s.mu.Lock()
		err = s.enqueue(request{batch: b, notes: notes, owner: b.Owner, epoch: b.Epoch, done: done})
		s.mu.Unlock()
	}
	if err != nil {
		done(err)
	}
}

func (s *badgerStore) Fence(owner string, epoch uint64) error {
	if err := checkOwner(owner); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.mu.Lock()
	oldest := s.fences[owner]
	err := error(nil)
	if epoch < oldest {
		err = fencedError(owner, epoch, oldest)
	} else if err = s.enqueue(request{owner: owner, epoch: epoch, done: func(err error) { done <- err }}); err == nil {
		// From here on the committer refuses older epochs, also those queued before. The transaction it may be writing
		// just now is complete before that of the fence is, and so before Fence returns.
		s.fences[owner] = epoch
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return <-done
}

// enqueue hands r to the committer. s.mu is held.
func (s *badgerStore) enqueue(r request) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.failed != nil:
		return s.failed
	}
	s.queue = append(s.queue, r)
	if len(s.queue) == 1 {
		s.cond.Broadcast()
	}
	return nil
}

// commitLoop is the committer: it ends when the store is closed and everything queued is answered.
func (s *badgerStore) commitLoop() {
	var taken []request
	for {
		s.mu.Lock()
		for len(s.queue) == 0 && !s.closed {
			s.cond.Wait()
		}
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		s.queue, taken = taken[:0], s.queue
		s.mu.Unlock()
		for rest := taken; len(rest) > 0; {
			rest = rest[s.commitSome(rest):]
		}
		clear(taken) // the callers' batches and closures must not be kept alive
	}
}

// commitSome writes as many requests as one transaction takes, answers them, and says how many that were.
func (s *badgerStore) commitSome(requests []request) int {
	g := &s.group
	g.reset()
	full, tooFull := s.room()
	now := time.Now()
	s.mu.Lock()
	err := s.failed
	for i := range requests {
		r := &requests[i]
		if oldest := s.fences[r.owner]; r.epoch < oldest && r.batch != nil {
			g.refuse(i, fencedError(r.owner, r.epoch, oldest))
		} else if why := r.mayBeWritten(full, tooFull); why != nil && err == nil {
			g.refuse(i, fmt.Errorf("write backup %q: %w", s.dir, why))
		} else if !g.add(r) {
			requests = requests[:i]
			break
		} else if !r.makesRoom() {
			s.wroteAt = now
		} else if r.batch != nil {
			s.remember(r.batch)
		}
	}
	s.mu.Unlock()
	if err == nil && len(g.entries)+len(g.deletes) > 0 {
		err = s.write(g)
	}
	g.answer(requests, err)
	return len(requests)
}

// write is one transaction.
func (s *badgerStore) write(g *group) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	err := g.fill(txn)
	if err == nil {
		err = s.seam.commit(txn)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write backup %q, no more writes until it is opened again: %w", s.dir, explain(err))
	s.fail(err)
	return err
}

// fail lets nothing be written any more.
func (s *badgerStore) fail(err error) {
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
	s.log.Error("backup write failed", "dir", s.dir, "err", err)
}

// group is the content of one transaction, in the order of the requests. Its buffers are used again and again.
type group struct {
	size    int
	keys    []byte // all keys with their key space
	entries []badger.Entry
	deletes [][]byte
	order   []bool // true: the next entry, false: the next delete
	refused []refusal
}

// refusal is a request that got no place in the transaction, by its index.
type refusal struct {
	index int
	err   error
}

func (g *group) reset() {
	clear(g.entries)
	clear(g.deletes)
	g.size, g.keys, g.entries, g.deletes = 0, g.keys[:0], g.entries[:0], g.deletes[:0]
	g.order, g.refused = g.order[:0], g.refused[:0]
}

// add takes r, unless the transaction would become too large. A request alone always fits.
func (g *group) add(r *request) bool {
	size := entryOverhead + len(r.owner)
	if r.batch != nil {
		size = r.batch.Size() + notesSize(r.notes)
	}
	if g.size > 0 && g.size+size > MaxBatchBytes {
		return false
	}
	g.size += size
	if r.batch == nil {
		g.put(spaceFence, []byte(r.owner), appendNumbers(nil, kindFence, r.epoch))
		return true
	}
	for i := range r.batch.Puts {
		g.put(spaceData, r.batch.Puts[i].Key, r.batch.Puts[i].Value)
	}
	for _, k := range r.batch.Deletes {
		g.remove(spaceData, k)
	}
	for i := range r.notes {
		if n := &r.notes[i]; len(n.Value) > 0 {
			g.put(spaceNote, n.Key, n.Value)
		} else {
			g.remove(spaceNote, n.Key)
		}
	}
	return true
}

func (g *group) put(space byte, key, value []byte) {
	g.entries = append(g.entries, badger.Entry{Key: g.key(space, key), Value: value})
	g.order = append(g.order, true)
}

func (g *group) remove(space byte, key []byte) {
	g.deletes = append(g.deletes, g.key(space, key))
	g.order = append(g.order, false)
}

func (g *group) key(space byte, key []byte) []byte {
	at := len(g.keys)
	g.keys = append(append(g.keys, space), key...)
	return g.keys[at:len(g.keys):len(g.keys)]
}

func (g *group) refuse(index int, err error) {
	g.refused = append(g.refused, refusal{index, err})
}

// fill puts everything into txn in order: what comes later for the same key replaces what came before.
func (g *group) fill(txn *badger.Txn) error {
	entries, deletes := g.entries, g.deletes
	for _, isEntry := range g.order {
		var err error
		if isEntry {
			err = txn.SetEntry(&entries[0])
			entries = entries[1:]
		} else {
			err = txn.Delete(deletes[0])
			deletes = deletes[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// answer calls done of every request.
func (g *group) answer(requests []request, err error) {
	refused := g.refused
	for i := range requests {
		if len(refused) > 0 && refused[0].index == i {
			requests[i].done(refused[0].err)
			refused = refused[1:]
			continue
		}
		requests[i].done(err)
	}
}
