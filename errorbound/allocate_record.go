package errorbound

import (
	"encoding/binary"
	"fmt"
	"math"
)

// recordVersion begins every record of a Ledger. Another number is of another version of the program.
const recordVersion = 1

// leastAccount is the fewest bytes that the record of one worker takes: three numbers of eight bytes, and two varints.
const leastAccount = 3*8 + 2

// AppendBinary appends a record of the whole ledger to dst, in about 30 bytes a worker and 8 more for each failure. It
// implements encoding.BinaryAppender and never fails.
//
// Whoever reads it back compares [Ledger.Failures] with the failures that it knows of, and calls Failed for those that
// were not recorded any more.
func (l *Ledger) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, recordVersion, byte(l.series), byte(l.p))
	dst = binary.AppendUvarint(dst, l.round)
	dst = binary.AppendUvarint(dst, uint64(len(l.workers)))
	for i := range l.workers {
		a := &l.workers[i]
		for _, f := range [...]float64{a.granted, a.target, a.wish} {
			dst = appendFloat(dst, f)
		}
		dst = binary.AppendUvarint(dst, a.lowering)
		dst = binary.AppendUvarint(dst, a.failures)
		for _, cost := range a.costs {
			dst = appendFloat(dst, cost)
		}
	}
	return dst, nil
}

// UnmarshalBinary makes l the ledger that AppendBinary recorded. The bytes may come from a disk that has altered them: a
// record that is none, or that breaks an invariant, is refused with an error that wraps ErrLedger, and l is unchanged. It
// implements encoding.BinaryUnmarshaler.
func (l *Ledger) UnmarshalBinary(record []byte) error {
	r := ledgerReader{rest: record}
	if version := r.byte(); version != recordVersion {
		r.fail("unknown version")
	}
	read := Ledger{series: Series(r.byte()), p: power(r.byte()), round: r.uint()}
	if read.series > Telescoping || read.p > 2 {
		r.fail("unknown series or norm")
	}
	workers := r.count(leastAccount)
	if workers == 0 {
		r.fail("no workers")
	}
	for range workers {
		read.workers = append(read.workers, r.account(read.round))
	}
	if len(r.rest) > 0 {
		r.fail("bytes left over")
	}
	if r.why != "" {
		return fmt.Errorf("%w: malformed record: %s", ErrLedger, r.why)
	}
	if err := read.Valid(); err != nil {
		return fmt.Errorf("malformed record: %w", err)
	}
	*l = read
	return nil
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// ledgerReader reads a record; the first fault sticks in why, and nothing is read after it.
type ledgerReader struct {
	rest []byte
	why  string
}

func (r *ledgerReader) fail(why string) {
	if r.why == "" {
		r.why = why
	}
	r.rest = nil
}

func (r *ledgerReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("cut short")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *ledgerReader) uint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("malformed number")
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count reads how many elements of at least size bytes follow.
func (r *ledgerReader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.rest)/size) {
		r.fail("count beyond the end")
		return 0
	}
	return int(n)
}

func (r *ledgerReader) float() float64 {
	if len(r.rest) < 8 {
		r.fail("cut short")
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64(r.rest))
	r.rest = r.rest[8:]
	if !(f >= 0 && f <= 2) { // rounding may have put a little on 1; NaN is refused, too
		r.fail("a share that is none")
	}
	return f
}

func (r *ledgerReader) account(round uint64) account {
	a := account{granted: r.float(), target: r.float(), wish: r.float(), lowering: r.uint()}
	if a.lowering > round {
		r.fail("a round that was not yet")
	}
	failures := r.count(8)
	a.failures = uint64(failures)
	for range failures {
		cost := r.float()
		a.costs = append(a.costs, cost)
		a.spent += cost // in the order in which it was added up
	}
	return a
}
