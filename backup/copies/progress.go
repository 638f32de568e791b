package copies

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/afstream/afstream/backup"
)

// point is a place in the sequence of an owner's batches. Numbers count by two: 2n is that n batches of the epoch are there.
// 2n+1 is that batch n+1 may be there: it was too large to carry its number itself.
type point struct{ epoch, number uint64 }

func (p point) less(q point) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.number < q.number
}

// progress is what a member's record says of an owner. The zero value is that of a member without one.
type progress struct {
	known bool
	torn  bool // the keys are being made those of another member, and are neither the one nor the other
	point
	step *step // how the last batch has got it there, if that was small
}

// step is which keys a batch touches, and where it starts from.
type step struct {
	before        point
	puts, deletes [][]byte
}

// Limits of what a record tells of a batch. Commits touch a key or two, and delete some more.
const (
	maxStepPuts  = 8
	maxStepBytes = 2 << 10
)

// settled says that two members with this progress hold the same keys and values.
func (p *progress) settled() bool { return p.known && !p.torn && p.number%2 == 0 }

func (p *progress) same(q *progress) bool {
	return p.known == q.known && p.torn == q.torn && p.point == q.point
}

// ahead says that p is to be preferred as a source.
func (p *progress) ahead(q *progress) bool {
	if p.torn != q.torn {
		return q.torn
	}
	if p.known != q.known {
		return p.known
	}
	return q.point.less(p.point)
}

// recordPrefix begins the keys of records; see the layout in package backup.
const recordPrefix = "v/"

func recordKey(owner string) []byte { return []byte(recordPrefix + owner) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	recordVersion = 1
	flagTorn      = 1
	flagStep      = 2
)

// appendProgress appends a record: version, flags, epoch, number; for a step the point before it and the keys, puts
// and deletes, each list with its length in front; CRC32C.
func appendProgress(dst []byte, p *progress) []byte {
	at := len(dst)
	flags := byte(0)
	if p.torn {
		flags |= flagTorn
	}
	if p.step != nil {
		flags |= flagStep
	}
	dst = appendPoint(append(dst, recordVersion, flags), p.point)
	if p.step != nil {
		dst = appendPoint(dst, p.step.before)
		dst = appendKeys(appendKeys(dst, p.step.puts), p.step.deletes)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func appendPoint(dst []byte, p point) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, p.epoch), p.number)
}

func appendKeys(dst []byte, keys [][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, k := range keys {
		dst = append(binary.AppendUvarint(dst, uint64(len(k))), k...)
	}
	return dst
}

// decodeProgress is the inverse. A record that cannot be read is as good as none: the member is not taken as a source and
// compared key by key. The result refers to nothing of b.
func decodeProgress(b []byte) progress {
	const head, tail = 2, 4
	if len(b) < head+16+tail || b[0] != recordVersion || b[1]&^(flagTorn|flagStep) != 0 {
		return progress{}
	}
	body := b[:len(b)-tail]
	if binary.BigEndian.Uint32(b[len(body):]) != crc32.Checksum(body, castagnoli) {
		return progress{}
	}
	r := reader{rest: bytes.Clone(body[head:])}
	p := progress{known: true, torn: b[1]&flagTorn != 0, point: r.point()}
	if b[1]&flagStep != 0 {
		p.step = &step{before: r.point(), puts: r.keys(), deletes: r.keys()}
	}
	if r.bad || len(r.rest) > 0 {
		return progress{}
	}
	return p
}

// reader takes a record apart.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) point() point {
	b := r.take(16)
	if b == nil {
		return point{}
	}
	return point{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

func (r *reader) count() uint64 {
	n, k := binary.Uvarint(r.rest)
	if r.take(uint64(max(k, 0))); k <= 0 {
		r.bad = true
	}
	return n
}

func (r *reader) keys() [][]byte {
	n := r.count()
	if n > uint64(len(r.rest)) { // each takes two bytes
		r.bad = true
		return nil
	}
	var list [][]byte
	for range n {
		k := r.take(r.count())
		if len(k) == 0 || len(k) > backup.MaxKeyBytes {
			r.bad = true
			return nil
		}
		list = append(list, k)
	}
	return list
}
