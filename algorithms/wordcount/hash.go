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

// hashOf is the hash that tables look words up by. Words are short, and most of what xxhash takes for them is spent on what
// makes it fast for long input: two multiplications of 64 by 64 bits mix two overlapping halves in half the time. It never
// leaves the process: what partitions and backups go by is xxhash.
func hashOf(word []byte) uint64 {
	n := len(word)
	var a, b uint64
	switch {
	case n > 16:
		return xxhash.Sum64(word)
	case n >= 8:
		a, b = binary.LittleEndian.Uint64(word), binary.LittleEndian.Uint64(word[n-8:])
	case n >= 4:
		a, b = uint64(binary.LittleEndian.Uint32(word)), uint64(binary.LittleEndian.Uint32(word[n-4:]))
	case n > 0:
		a, b = uint64(word[0])<<8|uint64(word[n-1]), uint64(word[n/2])
	}
	high, low := bits.Mul64(a^hashKey1, b^hashKey2^uint64(n)<<56)
	high, low = bits.Mul64(high^low^uint64(n), hashKey3)
	return high ^ low
}
