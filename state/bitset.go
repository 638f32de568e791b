package state

import "math/bits"

// bitset is a set of indices below a fixed number. It takes a bit for each, so that what is looked up at random stays in
// the caches where a byte for each would not, and it yields its members in order, which visits memory in order.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i int) bool { return b[uint(i)/64]>>(uint(i)%64)&1 != 0 }
func (b bitset) add(i int)      { b[uint(i)/64] |= 1 << (uint(i) % 64) }
func (b bitset) remove(i int)   { b[uint(i)/64] &^= 1 << (uint(i) % 64) }

// addAll adds the members of other, of the same size.
func (b bitset) addAll(other bitset) {
	for k, word := range other {
		b[k] |= word
	}
}

// count returns the number of members, in time for each 64 indices.
func (b bitset) count() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// appendTo appends the members in ascending order. It takes time for each member and for each 64 indices.
func (b bitset) appendTo(list []int) []int {
	for k, word := range b {
		for ; word != 0; word &= word - 1 {
			list = append(list, k*64+bits.TrailingZeros64(word))
		}
	}
	return list
}
