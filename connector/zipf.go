package connector

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/stream"
)

// MaxZipfKeys is the largest number of keys of a skewed Zipf source: its table then
// takes 128 MiB. Uniform sources (S = 0) need no table and have no limit.
const MaxZipfKeys = 1 << 24

// zipfCachedKeys is how many of the most frequent keys are kept ready-made, 56 bytes
// each: as many as stay in a second-level cache.
const zipfCachedKeys = 1 << 14

// ZipfOptions describes a stream of keys of which the r-th most frequent (r from 0)
// appears with probability proportional to 1/(r+1)^S.
type ZipfOptions struct {
	// Items is how many items there are over all partitions; 0 means the source
	// never ends.
	Items uint64
	// Keys is how many distinct keys there can be, at least 1 and at most
	// MaxZipfKeys unless S is 0.
	Keys uint64
	// S is the skew, finite and not negative. 0 is uniform, 1 is much like words in
	// text; at 3 the first key has 83% of all items.
	S float64
	// Seed selects the stream: the same options give the same items in every process.
	Seed uint64
}

func (o ZipfOptions) validate() error {
	var errs []error
	if math.IsNaN(o.S) || math.IsInf(o.S, 0) || o.S < 0 {
		errs = append(errs, fmt.Errorf("zipf skew %v: must be finite and not negative", o.S))
	}
	if o.Keys == 0 {
		errs = append(errs, errors.New("zipf with no keys: must have at least 1"))
	}
	if o.Keys > MaxZipfKeys && o.S != 0 {
		errs = append(errs, fmt.Errorf("zipf with %d keys: at most %d unless the skew is 0", o.Keys, MaxZipfKeys))
	}
	return errors.Join(errs...)
}

// Zipf returns a source of items with Zipf-distributed keys "k000000" (the most
// frequent) to "k" and Keys-1, of at least six digits, all of weight 1.
//
// There is one stream per seed, of which partition p of n yields items p, p+n, p+2n
// and so on: the items over all partitions are the same for every n and exactly Items.
// Item i depends on seed and i alone, hence Seek takes constant time.
//
// It costs one table of 8 bytes a key, shared by the partitions (none if S is 0), built
// in time proportional to Keys when the first one is opened, since of a job on many nodes
// only those with a source need it, and up to 0.9 MiB of ready-made keys.
func Zipf(o ZipfOptions) (stream.NewSource[Keyed], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	g := &zipf{keys: o.Keys, seed: mix64(o.Seed), names: newKeyNames(o.Keys)}
	build := sync.OnceFunc(func() {
		if o.S != 0 {
			g.table = newAliasTable(int(o.Keys), func(rank int) float64 { return math.Pow(float64(rank+1), -o.S) })
		}
		g.cached = make([]Keyed, min(o.Keys, zipfCachedKeys))
		for r := range g.cached {
			g.names.put(&g.cached[r], uint64(r))
		}
	})
	total := o.Items
	if total == 0 {
		total = math.MaxUint64
	}
	return func(part, parts int) (stream.Source[Keyed], error) {
		if err := checkPart(part, parts); err != nil {
			return nil, err
		}
		build()
		return &zipfSource{zipf: g, share: newShare(part, parts, total)}, nil
	}, nil
}

// zipf is what the partitions share; it does not change once the first is open.
type zipf struct {
	keys, seed uint64
	table      aliasTable // nil if uniform
	names      keyNames
	cached     []Keyed // the items of the first ranks
}

type zipfSource struct {
	*zipf
	share
}

// Read implements stream.Source.
func (s *zipfSource) Read(dst []Keyed) (int, error) {
	index, n, err := s.take(len(dst))
	if err != nil {
		return 0, err
	}
	for i := range n {
		rank := s.rank(index)
		if rank < uint64(len(s.cached)) {
			dst[i] = s.cached[rank]
		} else {
			s.names.put(&dst[i], rank)
		}
		index += s.step
	}
	return n, nil
}

// rank draws the rank of item i. The column and the coin of the alias method are the
// high and low word of one product: the coin is what is left of a random number after
// its column is taken, uniform up to Keys/2^64.
func (z *zipf) rank(i uint64) uint64 {
	column, coin := bits.Mul64(mix64(z.seed+i*golden), z.keys)
	if z.table == nil {
		return column
	}
	c := &z.table[column]
	if uint32(coin>>32) < c.keep {
		return column
	}
	return uint64(c.alias)
}

// golden is 2^64 over the golden ratio, the step of splitmix64.
const golden = 0x9e3779b97f4a7c15

// mix64 is the output function of splitmix64 (Steele, Lea, Flood 2014), a bijection
// that makes consecutive multiples of golden pass as random: a random number
// generator whose i-th output can be had without the ones before.
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// aliasTable draws from any distribution over its indexes in constant time (Walker
// 1977; built as by Vose 1991): take a column uniformly, keep it with its probability
// or else take its alias.
type aliasTable []aliasColumn

type aliasColumn struct {
	// keep is the probability to stay, in 2^-32. A full column has itself as alias
	// instead, so that 2^32, which does not fit, is not needed.
	keep  uint32
	alias uint32
}

// newAliasTable builds the table for n weights, of which at least one is positive.
// It needs 12 more bytes a column while it builds.
func newAliasTable(n int, weight func(int) float64) aliasTable {
	scaled := make([]float64, n) // weight over average weight
	sum := 0.0
	for i := n - 1; i >= 0; i-- { // small ones first loses least
		scaled[i] = weight(i)
		sum += scaled[i]
	}
	for i := range scaled {
		scaled[i] *= float64(n) / sum
	}
	t := make(aliasTable, n)
	// Columns still to fill: those with less than their share grow from the left,
	// those with more from the right.
	todo := make([]uint32, n)
	small, large := 0, n
	for i := range n {
		t[i].alias = uint32(i)
		if scaled[i] < 1 {
			todo[small] = uint32(i)
			small++
		} else {
			large--
			todo[large] = uint32(i)
		}
	}
	for small > 0 && large < n {
		small--
		s, l := todo[small], todo[large]
		t[s] = aliasColumn{keep: uint32(min(scaled[s]*(1<<32), math.MaxUint32)), alias: l}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large++
			todo[small] = l
			small++
		}
	}
	return t // the rest are full up to rounding and their own alias
}

// keyNames makes the key of a rank: "k" and the rank with leading zeros.
type keyNames struct{ width int }

func newKeyNames(keys uint64) keyNames {
	width := 6
	for most := keys - 1; most >= 1_000_000; most /= 10 {
		width++
	}
	return keyNames{width: width}
}

// put makes dst the item of a rank.
func (f keyNames) put(dst *Keyed, rank uint64) {
	*dst = Keyed{Weight: 1, Key: Key{n: uint8(f.width) + 1}}
	text := dst.Key.b[:f.width+1]
	text[0] = 'k'
	for i := f.width; i > 0; i-- {
		text[i] = byte('0' + rank%10)
		rank /= 10
	}
	dst.Hash = xxhash.Sum64(text)
}
