package logreg

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Hasher turns rows of categories into examples by the hashing trick (Weinberger and others, 2009): the feature of a
// category is number hash("column=value") mod 2^Bits, with value 1. There is no dictionary to build or to back up; the
// price is that categories may share a weight. Two categories of one row that share it count once.
//
// A Hasher may not be used by two goroutines at once. It allocates once for some hundred rows.
type Hasher struct {
	builder
	bits uint
	text []byte
}

// NewHasher returns a Hasher for models of 2^bits weights. It panics if bits is not from 1 to MaxBits.
func NewHasher(bits int) *Hasher {
	if bits < 1 || bits > MaxBits {
		panic(fmt.Errorf("%w: %d bits, want 1 to %d", ErrOptions, bits, MaxBits))
	}
	return &Hasher{bits: uint(bits)}
}

// Add adds the category value of a column to the row.
func (h *Hasher) Add(column, value string) {
	h.text = append(append(append(h.text[:0], column...), '='), value...)
	h.add(h.index(xxhash.Sum64(h.text)), 1)
}

// AddNumber adds a category that is a number, as its decimal text would be if that were cheap: it has an index of its own.
func (h *Hasher) AddNumber(column string, value int64) {
	h.addPair(column, "", value)
}

// addPair adds the category of a text and a number together.
func (h *Hasher) addPair(column, text string, value int64) {
	h.text = append(append(append(h.text[:0], column...), '#'), text...)
	h.text = binary.LittleEndian.AppendUint64(h.text, uint64(value))
	h.add(h.index(xxhash.Sum64(h.text)), 1)
}

// index takes the high bits, which is hash mod 2^bits of the hash read backwards and as good.
func (h *Hasher) index(hash uint64) uint32 { return uint32(hash >> (64 - h.bits)) }

// Example ends the row and returns its example.
func (h *Hasher) Example(positive bool) Example {
	h.sort()
	return h.take(positive)
}

// Flight is what the flight-delay experiment knows of a flight before it lands, and how late it was.
type Flight struct {
	Micros              int64 // of departure by the local clock, since 1970
	Delay               int   // minutes of arrival, negative if early
	Distance            int   // miles
	Origin, Destination string
}

// LateMinutes is the delay beyond which a flight is late: 15 minutes, as the US Department of Transportation counts.
const LateMinutes = 15

// Flight turns a flight into an example, positive if it is late, of ten categories: hour, half-hour, weekday, day of the
// calendar, origin, destination, route, distance to a power of two, origin by hour, and destination by day.
func (h *Hasher) Flight(f *Flight) Example {
	const hour = 3_600_000_000
	day := floorDiv(f.Micros, 24*hour)
	clock := f.Micros - day*24*hour
	ofDay := clock / hour
	h.AddNumber("hour", ofDay)
	h.AddNumber("half", clock/(hour/2))
	h.AddNumber("weekday", floorMod(day, 7))
	h.AddNumber("day", day)
	h.Add("origin", f.Origin)
	h.Add("destination", f.Destination)
	h.route(f.Origin, f.Destination)
	h.AddNumber("distance", int64(bits.Len(uint(max(f.Distance, 0)))))
	h.addPair("origin-hour", f.Origin, ofDay)
	h.addPair("destination-day", f.Destination, day)
	return h.Example(f.Delay > LateMinutes)
}

// route adds the category of two airports together.
func (h *Hasher) route(origin, destination string) {
	h.text = append(append(append(h.text[:0], "route="...), origin...), '|')
	h.text = append(h.text, destination...)
	h.add(h.index(xxhash.Sum64(h.text)), 1)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
