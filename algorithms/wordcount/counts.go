package wordcount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/cespare/xxhash/v2"

	"github.com/afstream/afstream/stream"
)

// ErrCounts is wrapped by the errors about Counts that no table can have emitted.
var ErrCounts = errors.New("wordcount: malformed counts")

// Shards is into how many parts words are divided by hash, so that a table can be sent to any number of partitions up
// to that.
const Shards = 64

// countsSize is how many bytes of words and counts one Counts holds, but for the last of them.
const countsSize = 32 << 10

// Counts is a piece of a table: words of one shard, each once, with their counts. The zero Counts holds none.
type Counts struct {
	shard uint8
	data  []byte // length of a word, the word, its count: varints
}

// shardOf returns the part that a word belongs to, by the upper bits of its hash.
func shardOf(hash uint64) uint8 { return uint8(hash >> (64 - 6)) }

// ByShard sends all counts of a word to the same partition. It must partition the input of Merge if Merge has more
// than one partition, of which no more than Shards can be of use.
func ByShard() stream.Option {
	return stream.Custom(func(c Counts, n int) int { return partitionOf(c.shard, n) })
}

func partitionOf(shard uint8, n int) int { return int(shard) * n / Shards }

// All yields the words with their counts. A word is valid until the next.
func (c Counts) All() iter.Seq2[[]byte, uint64] {
	return func(yield func([]byte, uint64) bool) {
		for rest := c.data; len(rest) > 0; {
			word, count, after, ok := takeCount(rest)
			if !ok || !yield(word, count) {
				return
			}
			rest = after
		}
	}
}

// pieces yields the counts of t by shard and hash.
func (t *table) pieces() iter.Seq[Counts] {
	return func(yield func(Counts) bool) {
		var c Counts
		for _, w := range t.byHash() {
			shard := shardOf(w.hash)
			if len(c.data) > 0 && (shard != c.shard || len(c.data) >= countsSize) {
				if !yield(c) {
					return
				}
				c.data = nil
			}
			word := t.word(w.index)
			c.shard = shard
			c.data = binary.AppendUvarint(c.data, uint64(len(word)))
			c.data = append(c.data, word...)
			c.data = binary.AppendUvarint(c.data, t.entries[w.index].count)
		}
		if len(c.data) > 0 {
			yield(c)
		}
	}
}

// takeCount takes one word and its count off data.
func takeCount(data []byte) (word []byte, count uint64, rest []byte, ok bool) {
	length, n := binary.Uvarint(data)
	if n <= 0 || length == 0 || length >= 1<<lengthBits || length > uint64(len(data)-n) {
		return nil, 0, nil, false
	}
	data = data[n:]
	word, data = data[:length:length], data[length:]
	count, n = binary.Uvarint(data)
	if n <= 0 || count == 0 || count > maxTotal {
		return nil, 0, nil, false
	}
	return word, count, data[n:], true
}

// uvarint reads a number that takes all of b.
func uvarint(b []byte) (uint64, bool) {
	v, n := binary.Uvarint(b)
	return v, n > 0 && n == len(b)
}

// AppendBinary appends the wire form of c; the error is always nil. It implements encoding.BinaryAppender.
func (c Counts) AppendBinary(dst []byte) ([]byte, error) {
	return append(append(dst, c.shard), c.data...), nil
}

// UnmarshalBinary decodes what AppendBinary made and keeps nothing of src. The error wraps ErrCounts and leaves c as it
// was. It implements encoding.BinaryUnmarshaler.
func (c *Counts) UnmarshalBinary(src []byte) error {
	if len(src) == 0 || src[0] >= Shards {
		return fmt.Errorf("%w: %d bytes, or no shard", ErrCounts, len(src))
	}
	for rest := src[1:]; len(rest) > 0; {
		word, _, after, ok := takeCount(rest)
		if !ok || shardOf(xxhash.Sum64(word)) != src[0] {
			return fmt.Errorf("%w: at byte %d of %d", ErrCounts, len(src)-len(rest), len(src))
		}
		rest = after
	}
	*c = Counts{shard: src[0], data: append([]byte(nil), src[1:]...)}
	return nil
}
