package remote

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/afstream/afstream/backup"
)

// windowBatches is how many batches a client may have under way. A session has so many slots: the slot of a batch is
// overwritten by one that is sent only when the client knows what has become of the first.
const windowBatches = 256

// session is what the server knows of the batches of one client. It is pure but for the clock, which is passed in; the
// server's mutex guards it.
//
// Invariants: base <= next <= base+windowBatches; results are those of [base, next); wire holds parts of batch next.
type session struct {
	id    ident
	reply string    // where the client listens
	heard time.Time // when it was heard of last

	base, next uint64 // next is 0 until the first message since the server started
	highest    uint64 // last batch that was applied
	heardRound uint64 // rounds below it need no more be told to go back
	results    [windowBatches]slot
	before     *history // what was applied before the server started; nil if nothing was
	lost       bool     // batches that the client knows to be durable are not there
	// owners are those that the client has written for since the server started, with its newest epoch, and that nobody
	// has fenced in a newer one since. nil: it has written for none, as far as this server knows.
	owners map[string]uint64

	wire  []byte
	total int
}

type slot struct {
	known bool
	result
}

// history is what notes tell of a session.
type history struct {
	highest uint64
	applied [windowBatches]uint64 // the last batch applied with this slot
}

// action is what follows from a message.
type action int

const (
	ignore action = iota
	tell          // what has become of the batch
	goBack        // to batch next
	report        // that the session is lost
	run           // the batch: it is complete
)

// receive takes in a part of a batch that is meant for this start of the server, whose number is boot. After run, wire is the batch and next is still its number: the server goes on with
// start or with hold.
func (s *session) receive(a *apply, boot uint64) action {
	s.catchUp(a.base, a.sure)
	switch {
	case s.lost:
		return report
	case a.boot != boot:
		return s.missing(a.round)
	case a.seq < s.base:
		return ignore
	case a.seq < s.next:
		return tell
	case a.seq > s.next:
		return s.missing(a.round)
	}
	if a.offset == 0 && len(a.piece) == a.total {
		s.wire = a.piece // nothing to put together
		return run
	}
	switch {
	case a.offset == 0:
		s.wire, s.total = append(make([]byte, 0, a.total), a.piece...), a.total
	case a.offset < len(s.wire):
		return ignore
	case a.offset > len(s.wire) || a.total != s.total:
		return s.missing(a.round)
	default:
		s.wire = append(s.wire, a.piece...)
	}
	if len(s.wire) < a.total {
		return ignore
	}
	return run
}

// catchUp makes use of what a client says it knows.
func (s *session) catchUp(base, sure uint64) {
	s.lost = s.lost || sure > s.highest
	s.base = max(s.base, base)
	if s.next < s.base {
		s.next, s.wire = s.base, nil
	}
}

// missing asks the client to go back, once for each of its rounds: all that it has sent in this one is as good as lost.
func (s *session) missing(round uint64) action {
	if round < s.heardRound {
		return ignore
	}
	s.heardRound = round + 1
	return goBack
}

// start passes on to the next batch.
func (s *session) start() (seq uint64, wire []byte) {
	seq, wire = s.next, s.wire
	s.results[seq%windowBatches] = slot{}
	s.next, s.wire = seq+1, nil
	return seq, wire
}

// hold drops what has come of the next batch.
func (s *session) hold(round uint64) action {
	s.wire = nil
	return s.missing(round)
}

func (s *session) finish(seq uint64, r result) {
	if seq >= s.base {
		s.results[seq%windowBatches] = slot{known: true, result: r}
	}
	if r.code == codeOK {
		s.highest = max(s.highest, seq)
	}
}

// wrote takes note that a batch of that owner was applied.
func (s *session) wrote(owner string, epoch uint64) {
	if s.owners == nil {
		s.owners = map[string]uint64{}
	}
	s.owners[owner] = max(s.owners[owner], epoch)
}

// fencedOff takes note of a fence.
func (s *session) fencedOff(owner string, epoch uint64) {
	if e, ok := s.owners[owner]; ok && e < epoch {
		delete(s.owners, owner)
	}
}

// isFenced says that nothing which the client could still send would be applied: it has written, and all that it has written for
// has been fenced since.
func (s *session) isFenced() bool { return s.owners != nil && len(s.owners) == 0 && s.before == nil }

// outcomes appends what is known of the batches [from, to).
func (s *session) outcomes(list []outcome, from, to uint64) []outcome {
	for seq := max(from, s.base); seq < min(to, s.next); seq++ {
		if r := &s.results[seq%windowBatches]; r.known {
			list = append(list, outcome{seq, r.result})
		}
	}
	return list
}

// settled says what became of a batch before the server was started: known is false if it was not applied and may be.
func (s *session) settled(seq uint64) (applied, known bool) {
	if s.before == nil || seq > s.before.highest {
		return false, false
	}
	return s.before.applied[seq%windowBatches] == seq, true
}

// Keys of notes: the store's name with the number of its last start, the sessions, and for each slot of a session the batch that was applied last. The
// latter is written in the atom of the batch.
const (
	noteStore   = 'i'
	noteSession = 'o'
	noteSlot    = 's'
)

func sessionKey(id ident) []byte { return append([]byte{noteSession}, id[:]...) }

func slotNote(id ident, seq uint64) backup.Entry {
	buf := make([]byte, 0, 1+len(id)+2+noteBytes)
	buf = append(append(buf, noteSlot), id[:]...)
	buf = binary.BigEndian.AppendUint16(buf, uint16(seq%windowBatches))
	n := len(buf)
	return backup.Entry{Key: buf[:n:n], Value: appendNote(buf, seq)[n:]}
}

// noteBytes is a version, a number and a CRC32C.
const noteBytes = 1 + 8 + 4

func appendNote(dst []byte, n uint64) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint64(append(dst, version), n)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func decodeNote(v []byte) (n uint64, ok bool) {
	if len(v) != noteBytes || v[0] != version || binary.BigEndian.Uint32(v[9:]) != crc32.Checksum(v[:9], castagnoli) {
		return 0, false
	}
	return binary.BigEndian.Uint64(v[1:]), true
}

// forget returns the notes to delete when a session ends.
func forget(id ident) []backup.Entry {
	list := []backup.Entry{{Key: sessionKey(id)}}
	for i := range uint64(windowBatches) {
		list = append(list, backup.Entry{Key: slotNote(id, i).Key})
	}
	return list
}
