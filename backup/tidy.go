package backup

import (
	"bytes"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// A delete takes room itself until the tables with what was deleted are compacted, which happens as others are written. On an
// idle store that is never, and a full one takes no writes. So the store has the tables of jobs that were dropped rewritten
// without them. Meanwhile it takes no writes and begins no scans, for some tenths of a second, mostly: it waits until nothing
// has been written for a while, or nothing can be.
const (
	tidyEvery = 5 * time.Second
	tidyQuiet = 10 * time.Second

	// maxDropped bounds what is remembered of jobs that were dropped. What is beyond it is compacted at its time.
	maxDropped = 256
)

// remember takes note of the job and incarnation of which b deletes states or results, if it does nothing else. s.mu is held.
func (s *badgerStore) remember(b *Batch) {
	for _, k := range b.Deletes {
		prefix := jobPrefix(k)
		if prefix == nil || len(s.dropped) == maxDropped || bytes.Equal(prefix, s.droppedLast) {
			continue
		}
		s.droppedLast = bytes.Clone(prefix)
		s.dropped[string(prefix)] = true
	}
}

// jobPrefix is what all keys of states, or of results, of the same incarnation of a job begin with; nil for other keys.
func jobPrefix(key []byte) []byte {
	if !bytes.HasPrefix(key, []byte("s/")) && !bytes.HasPrefix(key, []byte("r/")) {
		return nil
	}
	at := 2
	for range 2 {
		i := bytes.IndexByte(key[at:], '/')
		if i < 0 {
			return nil
		}
		at += i + 1
	}
	return key[:at]
}

// mayTidy returns what was dropped if now is the time to give back its room.
func (s *badgerStore) mayTidy(now time.Time) []string {
	full, tooFull := s.room()
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet := len(s.queue) == 0 && now.Sub(s.wroteAt) >= tidyQuiet
	if len(s.dropped) == 0 || tooFull != nil || s.failed != nil || !quiet && full == nil {
		return nil
	}
	var list []string
	for prefix := range s.dropped {
		list = append(list, prefix)
	}
	clear(s.dropped)
	s.droppedLast = nil
	return list
}

// tidy gives back the room of what was dropped. It is for the collector's goroutine.
func (s *badgerStore) tidy(now time.Time) {
	list := s.mayTidy(now)
	if len(list) == 0 {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	var prefixes [][]byte
	for _, prefix := range list {
		p := append([]byte{spaceData}, prefix...)
		empty := true
		err := s.scan(p, func(_, _ []byte) error {
			empty = false
			return errStop
		})
		if empty && err == nil { // else only a part was deleted
			prefixes = append(prefixes, p)
		}
	}
	if len(prefixes) == 0 {
		return
	}
	began := time.Now()
	if err := s.dropTables(prefixes); err != nil {
		s.fail(fmt.Errorf("give back room of jobs in backup %q, no more writes until it is opened again: %w", s.dir, explain(err)))
		return
	}
	s.log.Debug("gave back the room of what was deleted", "dir", s.dir, "jobs", len(prefixes), "dur", time.Since(began))
}

// dropTables has the tables with these prefixes rewritten. Badger does nothing for prefixes without a key, so each gets one.
func (s *badgerStore) dropTables(prefixes [][]byte) error {
	err := s.db.Update(func(txn *badger.Txn) error {
		for _, p := range prefixes {
			if err := txn.Set(append(bytes.Clone(p), 0xff), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.db.DropPrefix(prefixes...)
}
