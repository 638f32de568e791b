package wordcount

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Odd constants with as many ones as zeros.
const (
	hashKey1 = 0xa0761d6478bd642f
	hashKey2 = 0xe7037ed1a0b428db
	hashKey3 = 0x8ebc6af09c88c6e3
)

// inKey is the length of the longest word that is all in its key.
const inKey = 16

// key is what tables look words up by. With its length it is all of a word of up to inKey bytes, in two halves that
// overlap, so that the word itself need not be looked at; of a longer word it is a hash.
type key struct{ front, back uint64 }

func keyOf(word []byte) key {
	n := len(word)
	switch {
	case n > inKey:
		return key{front: xxhash.Sum64(word)}
	case n >= 8:
		return key{binary.LittleEndian.Uint64(word), binary.LittleEndian.Uint64(word[n-8:])}
	case n >= 4:
		return key{uint64(binary.LittleEndian.Uint32(word)), uint64(binary.LittleEndian.Uint32(word[n-4:]))}
	case n > 0:
		return key{uint64(word[0])<<8 | uint64(word[n-1]), uint64(word[n/2])}
	}
	return key{}
}

// hash returns the hash of a word of n bytes. Words are short, and most of what xxhash takes for them is spent on what
// makes it fast for long input: two multiplications of 64 by 64 bits mix the halves in half the time. It never leaves the
// process: what partitions and backups go by is xxhash.
func (k key) hash(n int) uint64 {
	high, low := bits.Mul64(k.front^hashKey1, k.back^hashKey2^uint64(n)<<56)
	high, low = bits.Mul64(high^low^uint64(n), hashKey3)
	return high ^ low
}

// tagOf returns what of a hash, and of the length of its word, is kept in a slot.
func tagOf(hash uint64, n int) uint64 { return hash>>40<<8 | uint64(min(n, 255)) }
