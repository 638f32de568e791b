package remote

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/afstream/afstream/backup"
)

// ident is a random name of a session or a store.
type ident [16]byte

func (id ident) String() string { return hex.EncodeToString(id[:]) }

// apply is a batch, or a part of one, on its way. The parts of a batch follow each other without a gap.
type apply struct {
	session ident
	boot    uint64 // the start of the server that the message is meant for; see status
	round   uint64 // how often the client has gone back; see queue.goBack
	base    uint64 // the client knows what has become of all batches before this one
	sure    uint64 // the last batch of which the client knows that it is durable, 0 if there is none
	seq     uint64 // number of the batch in its session, from 1
	offset  int    // where piece belongs in the batch
	total   int    // bytes of the batch
	piece   []byte
}

// applyHead is the most that a part takes beside its piece.
const applyHead = frameHead + 16 + 7*binary.MaxVarintLen64

// maxBatchWire is the most that appendBatch makes of a batch that a store may accept: lengths, owner and epoch come on
// top of what Batch.Size counts, which counts far more for each entry than its lengths take.
const maxBatchWire = backup.MaxBatchBytes + 1<<10

func appendApply(dst []byte, a *apply) []byte {
	dst = append(startFrame(dst, kindApply), a.session[:]...)
	for _, n := range [...]uint64{a.boot, a.round, a.base, a.sure, a.seq, uint64(a.offset), uint64(a.total)} {
		dst = binary.AppendUvarint(dst, n)
	}
	return seal(append(dst, a.piece...))
}

func decodeApply(r reader) (a apply, err error) {
	a.session = r.id()
	a.boot, a.round, a.base, a.sure, a.seq = r.number(), r.number(), r.number(), r.number(), r.number()
	offset, total := r.number(), r.number()
	if total > maxBatchWire || offset > total || uint64(len(r.rest)) > total-offset ||
		a.base == 0 || a.seq < a.base || a.seq-a.base >= windowBatches || a.sure >= a.base+windowBatches {
		r.fail()
	}
	a.offset, a.total, a.piece = int(offset), int(total), r.rest
	r.rest = nil
	return a, r.end("batch")
}

// appendBatch appends the wire form of b, which its parts carry.
func appendBatch(dst []byte, b *backup.Batch) []byte {
	dst = appendBytes(dst, []byte(b.Owner))
	dst = binary.AppendUvarint(dst, b.Epoch)
	dst = binary.AppendUvarint(dst, uint64(len(b.Puts)))
	for i := range b.Puts {
		dst = appendBytes(appendBytes(dst, b.Puts[i].Key), b.Puts[i].Value)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Deletes)))
	for _, k := range b.Deletes {
		dst = appendBytes(dst, k)
	}
	return dst
}

// decodeBatch returns a batch whose slices are parts of wire.
func decodeBatch(wire []byte) (*backup.Batch, error) {
	r := reader{rest: wire}
	b := &backup.Batch{Owner: string(r.bytes()), Epoch: r.number()}
	if n := r.count(2); n > 0 {
		b.Puts = make([]backup.Entry, n)
	}
	for i := range b.Puts {
		b.Puts[i] = backup.Entry{Key: r.bytes(), Value: r.bytes()}
	}
	if n := r.count(1); n > 0 {
		b.Deletes = make([][]byte, n)
	}
	for i := range b.Deletes {
		b.Deletes[i] = r.bytes()
	}
	if err := r.end("content of a batch"); err != nil {
		return nil, err
	}
	return b, nil
}

// probe asks what has become of the batches from base on, of which those before sent have been sent.
type probe struct {
	session                       ident
	boot, round, base, sure, sent uint64
}

func appendProbe(dst []byte, p *probe) []byte {
	dst = append(startFrame(dst, kindProbe), p.session[:]...)
	for _, n := range [...]uint64{p.boot, p.round, p.base, p.sure, p.sent} {
		dst = binary.AppendUvarint(dst, n)
	}
	return seal(dst)
}

func decodeProbe(r reader) (p probe, err error) {
	p.session = r.id()
	p.boot, p.round, p.base, p.sure, p.sent = r.number(), r.number(), r.number(), r.number(), r.number()
	if p.base == 0 || p.sent < p.base || p.sent-p.base > windowBatches || p.sure >= p.base+windowBatches {
		r.fail()
	}
	return p, r.end("probe")
}

// status says what has become of some batches of a session.
//
// Starts of the servers on a store are numbered. A server takes in batches only if they were sent by a client that knows
// of its start, and such a client no more listens to earlier servers. Otherwise a batch that one of them had refused could
// be applied by the next one before the client hears of the refusal.
type status struct {
	store    ident // of the server that answers
	session  ident
	boot     uint64 // the start of the server
	flags    byte
	round    uint64 // that of the message it answers
	next     uint64 // the next batch that the server wants, if flags say so
	outcomes []outcome
}

// Flags of a status.
const (
	flagGoBack  = 1 << iota // what was sent from next on is not there: send it again
	flagBusy                // wait before you do
	flagUnknown             // there is no such session
	flagLost                // batches that were durable are not there any more
	flagsKnown  = flagGoBack | flagBusy | flagUnknown | flagLost
)

// outcome is what became of one batch.
type outcome struct {
	seq uint64
	result
}

func appendStatus(dst []byte, s *status) []byte {
	dst = append(append(append(startFrame(dst, kindStatus), s.store[:]...), s.session[:]...), s.flags)
	for _, n := range [...]uint64{s.boot, s.round, s.next} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.outcomes)))
	for i := range s.outcomes {
		dst = appendResult(binary.AppendUvarint(dst, s.outcomes[i].seq), s.outcomes[i].result)
	}
	return seal(dst)
}

func decodeStatus(r reader) (s status, err error) {
	s.store, s.session, s.flags = r.id(), r.id(), r.byte()
	s.boot, s.round, s.next = r.number(), r.number(), r.number()
	if s.flags&^flagsKnown != 0 {
		r.fail()
	}
	if n := r.count(3); n > 0 {
		s.outcomes = make([]outcome, n)
	}
	for i := range s.outcomes {
		s.outcomes[i] = outcome{seq: r.number(), result: r.result()}
	}
	return s, r.end("status")
}

// call is a message that is a number of the client's choice and something that depends on its kind.
type call struct {
	id    uint64
	owner string // kindFence
	epoch uint64 // kindFence
	bytes []byte // kindScan: the prefix
	upTo  uint64 // kindTake: chunks consumed
	again bool   // kindTake: send the others once more
	over  bool   // kindTake: no more of them is wanted
}

func appendCall(dst []byte, kind byte, c *call) []byte {
	dst = binary.AppendUvarint(startFrame(dst, kind), c.id)
	switch kind {
	case kindFence:
		dst = binary.AppendUvarint(appendBytes(dst, []byte(c.owner)), c.epoch)
	case kindScan:
		dst = append(dst, c.bytes...)
	case kindTake:
		dst = append(binary.AppendUvarint(dst, c.upTo), bit(c.again)|bit(c.over)<<1)
	}
	return seal(dst)
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func decodeCall(kind byte, r reader) (c call, err error) {
	c.id = r.number()
	switch kind {
	case kindFence:
		c.owner, c.epoch = string(r.bytes()), r.number()
	case kindScan:
		c.bytes = r.rest
		if len(c.bytes) > backup.MaxKeyBytes {
			r.fail()
		}
		r.rest = nil
	case kindTake:
		var flags byte
		if c.upTo, flags = r.number(), r.byte(); flags > 3 {
			r.fail()
		}
		c.again, c.over = flags&1 != 0, flags&2 != 0
	}
	return c, r.end("call")
}

// welcome gives a client its session.
type welcome struct {
	id             uint64 // of the hello
	boot           uint64
	store, session ident
}

func appendWelcome(dst []byte, w *welcome) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(startFrame(dst, kindWelcome), w.id), w.boot)
	return seal(append(append(dst, w.store[:]...), w.session[:]...))
}

func decodeWelcome(r reader) (w welcome, err error) {
	w.id, w.boot, w.store, w.session = r.number(), r.number(), r.id(), r.id()
	return w, r.end("welcome")
}

// appendBye ends a session.
func appendBye(dst []byte, session ident) []byte {
	return seal(append(startFrame(dst, kindBye), session[:]...))
}

func decodeBye(r reader) (session ident, err error) {
	session = r.id()
	return session, r.end("bye")
}

// answer is the outcome of a call.
type answer struct {
	id uint64
	result
}

func appendAnswer(dst []byte, kind byte, a *answer) []byte {
	return seal(appendResult(binary.AppendUvarint(startFrame(dst, kind), a.id), a.result))
}

func decodeAnswer(r reader) (a answer, err error) {
	a.id, a.result = r.number(), r.result()
	return a, r.end("answer")
}

// chunk is a part of what a scan found: the stream of entries is cut anywhere.
type chunk struct {
	id    uint64
	index uint64
	last  bool
	result
	data []byte
}

// chunkHead is the most that a chunk takes beside its data.
const chunkHead = frameHead + 4*binary.MaxVarintLen64 + 2 + maxErrorText

func appendChunk(dst []byte, c *chunk) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(startFrame(dst, kindChunk), c.id), c.index)
	dst = appendResult(append(dst, bit(c.last)), c.result)
	return seal(append(dst, c.data...))
}

func decodeChunk(r reader) (c chunk, err error) {
	c.id, c.index = r.number(), r.number()
	last := r.byte()
	c.result = r.result()
	if last > 1 || last == 0 && c.result.code != codeOK {
		r.fail()
	}
	c.last, c.data = last == 1, r.rest
	r.rest = nil
	return c, r.end("chunk")
}
