package backup

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// Every record is
//
//	version(1) kind(1) fields payload crc32c(4, of all before)
//
// with fields as unsigned varints. Fields repeat the numbers of the record's key, so that a value that turns up under
// another key is found out. Decoders take bytes from a disk that may have altered them: they check each count against
// what is left before they allocate, and never panic.
const recordVersion = 1

const (
	recordHead = 2
	recordTail = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// startRecord appends a record's head to dst; sealRecord completes the record that starts at dst[at].
func startRecord(dst []byte, kind byte) []byte { return append(dst, recordVersion, kind) }

func sealRecord(dst []byte, at int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// fields reads varints off a record; the first fault sticks in why.
type fields struct {
	rest []byte
	why  string
}

// openRecord checks a record's frame. want lists the kinds that may stand here; kind is the one that does.
func openRecord(v []byte, want ...byte) (f fields, kind byte) {
	switch {
	case len(v) < recordHead+recordTail:
		return fields{why: "cut short"}, 0
	case v[0] != recordVersion:
		return fields{why: "unknown version"}, 0
	}
	body := len(v) - recordTail
	if crc32.Checksum(v[:body], castagnoli) != binary.LittleEndian.Uint32(v[body:]) {
		return fields{why: "checksum does not match"}, 0
	}
	if !slices.Contains(want, v[1]) {
		return fields{why: "another kind of record"}, 0
	}
	return fields{rest: v[recordHead:body]}, v[1]
}

func (f *fields) uint() uint64 {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 {
		f.fail("malformed number")
		return 0
	}
	f.rest = f.rest[size:]
	return n
}

// count reads how many elements of at least size bytes follow.
func (f *fields) count(size int) int {
	n := f.uint()
	if n > uint64(len(f.rest)/size) {
		f.fail("count beyond the end")
		return 0
	}
	return int(n)
}

func (f *fields) bytes() []byte {
	n := f.count(1)
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) expect(n uint64, what string) {
	if f.uint() != n && f.why == "" {
		f.fail(what)
	}
}

func (f *fields) fail(why string) {
	if f.why == "" {
		f.why = why
	}
	f.rest = nil
}

// end reports a fault if anything is left.
func (f *fields) end() {
	if len(f.rest) != 0 {
		f.fail("bytes left over")
	}
}

// step is what every commit records beside its elements.
type step struct {
	epoch   uint64
	closing uint64
	inputs  []Input // sorted by channel
	outputs []uint64
	source  []byte
}

func appendStep(dst []byte, s *step) []byte {
	dst = binary.AppendUvarint(dst, s.epoch)
	dst = binary.AppendUvarint(dst, s.closing)
	dst = binary.AppendUvarint(dst, uint64(len(s.inputs)))
	for i := range s.inputs {
		in := &s.inputs[i]
		dst = binary.AppendUvarint(dst, in.Channel)
		dst = binary.AppendUvarint(dst, in.Epoch)
		dst = binary.AppendUvarint(dst, in.Seq)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.outputs)))
	for _, n := range s.outputs {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.source)))
	return append(dst, s.source...)
}

// readStep fills s, reusing its slices.
func readStep(f *fields, s *step) {
	s.epoch, s.closing = f.uint(), f.uint()
	s.inputs = s.inputs[:0]
	for range f.count(3) {
		in := Input{Channel: f.uint(), Position: Position{Epoch: f.uint(), Seq: f.uint()}}
		if n := len(s.inputs); n > 0 && s.inputs[n-1].Channel >= in.Channel {
			f.fail("channels out of order")
		}
		s.inputs = append(s.inputs, in)
	}
	s.outputs = s.outputs[:0]
	for range f.count(1) {
		s.outputs = append(s.outputs, f.uint())
	}
	s.source = append(s.source[:0], f.bytes()...)
}

// manifest makes a generation complete.
type manifest struct {
	generation uint64
	chunks     uint64 // number of chunks of the base
	bytes      uint64 // element bytes of the base
	sum        uint32 // CRC32C of the base's element bytes
	// What the generation superseded, so that it can be deleted later without reading it.
	previous, previousDeltas uint64
	step                     step
}

func appendManifest(dst []byte, m *manifest) []byte {
	at := len(dst)
	dst = startRecord(dst, kindManifest)
	for _, n := range [...]uint64{m.generation, m.chunks, m.bytes, uint64(m.sum), m.previous, m.previousDeltas} {
		dst = binary.AppendUvarint(dst, n)
	}
	return sealRecord(appendStep(dst, &m.step), at)
}

// decodeManifest returns why v is no manifest of the given generation, or "".
func decodeManifest(v []byte, generation uint64, m *manifest) (why string) {
	f, _ := openRecord(v, kindManifest)
	f.expect(generation, "manifest of another generation")
	m.generation = generation
	m.chunks, m.bytes = f.uint(), f.uint()
	sum := f.uint()
	if sum > 1<<32-1 {
		f.fail("malformed sum")
	}
	m.sum = uint32(sum)
	m.previous, m.previousDeltas = f.uint(), f.uint()
	readStep(&f, &m.step)
	f.end()
	return f.why
}

func appendChunk(dst []byte, generation, n uint64, data []byte) []byte {
	at := len(dst)
	dst = startRecord(dst, kindChunk)
	dst = binary.AppendUvarint(dst, generation)
	dst = binary.AppendUvarint(dst, n)
	return sealRecord(append(dst, data...), at)
}

func decodeChunk(v []byte, generation, n uint64) (data []byte, why string) {
	f, _ := openRecord(v, kindChunk)
	f.expect(generation, "chunk of another generation")
	f.expect(n, "another chunk")
	return f.rest, f.why
}

// delta is one record on top of a base. A commit that fits one record is one final record; a larger one is a run of
// pieces that ends in the final record. All records of a run carry the number of its first: a run left unfinished by
// a crash and then partly overwritten can so never be taken for a part of another.
type delta struct {
	generation, n, first uint64
	final                bool
	step                 step // of the final record; of a piece only the epoch
	data                 []byte
}

func appendDelta(dst []byte, d *delta) []byte {
	at, kind := len(dst), byte(kindPiece)
	if d.final {
		kind = kindDelta
	}
	dst = startRecord(dst, kind)
	dst = binary.AppendUvarint(dst, d.generation)
	dst = binary.AppendUvarint(dst, d.n)
	dst = binary.AppendUvarint(dst, d.first)
	if d.final {
		dst = appendStep(dst, &d.step)
	} else {
		dst = binary.AppendUvarint(dst, d.step.epoch)
	}
	return sealRecord(append(dst, d.data...), at)
}

// decodeDelta fills d, reusing its slices; d.data stays a part of v.
func decodeDelta(v []byte, generation, n uint64, d *delta) (why string) {
	f, kind := openRecord(v, kindDelta, kindPiece)
	f.expect(generation, "delta of another generation")
	f.expect(n, "another delta")
	d.generation, d.n, d.first = generation, n, f.uint()
	d.final = kind == kindDelta
	if d.final {
		readStep(&f, &d.step)
	} else {
		d.step.epoch = f.uint()
	}
	d.data = f.rest
	return f.why
}

func appendLogEntry(dst []byte, n uint64, e *LogEntry) []byte {
	at := len(dst)
	dst = startRecord(dst, kindLog)
	for _, v := range [...]uint64{n, e.Channel, e.Epoch, e.First, uint64(e.Count), uint64(e.Kind)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return sealRecord(append(dst, e.Items...), at)
}

// decodeLogEntry fills e; e.Items stays a part of v.
func decodeLogEntry(v []byte, n uint64, e *LogEntry) (why string) {
	f, _ := openRecord(v, kindLog)
	f.expect(n, "another log entry")
	e.Channel, e.Epoch, e.First = f.uint(), f.uint(), f.uint()
	count, kind := f.uint(), f.uint()
	if count > maxLogCount || kind > 255 || e.First+count < e.First {
		f.fail("malformed numbers")
	}
	e.Count, e.Kind, e.Items = int(count), uint8(kind), f.rest
	return f.why
}

// appendNumbers and decodeNumbers are for the small records that are nothing but numbers.
func appendNumbers(dst []byte, kind byte, numbers ...uint64) []byte {
	at := len(dst)
	dst = startRecord(dst, kind)
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, n)
	}
	return sealRecord(dst, at)
}

func decodeNumbers(v []byte, kind byte, numbers ...*uint64) (why string) {
	f, _ := openRecord(v, kind)
	for _, n := range numbers {
		*n = f.uint()
	}
	f.end()
	return f.why
}
